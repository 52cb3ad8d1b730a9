"""The fields of a server's responses that are read. Only texts are required; all optional fields are validated too."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from sweet.llm.base import Alternatives, Reply

Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    id: str


class Served(BaseModel):
    """The response of /v1/models."""

    data: list[_Model]

    @property
    def names(self) -> list[str]:
        return [model.id for model in self.data]


class _Message(BaseModel):
    content: str | None = None


class _TopLogprob(BaseModel):
    token: str
    logprob: float


class _Token(BaseModel):
    logprob: float
    token: str = ""
    top_logprobs: list[_TopLogprob] | None = None

    def alternatives_of(self) -> Alternatives:
        top = self.top_logprobs or ()
        return Alternatives(
            self.token, tuple((entry.token, entry.logprob) for entry in top if math.isfinite(entry.logprob))
        )


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    index: Count = 0
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[Count] | None = None

    def reply(self) -> Reply:
        """The reply; log-probabilities are used only if they are finite and, if there are ids, one for each."""
        ids = self.token_ids
        content = self.logprobs.content if self.logprobs else None
        has_alternatives = content is not None and any(token.top_logprobs for token in content)
        logprobs = None if content is None else tuple(token.logprob for token in content)
        if logprobs is not None and ids is not None and len(logprobs) != len(ids):
            logprobs = None
        if logprobs is not None and not all(map(math.isfinite, logprobs)):
            logprobs = None
        return Reply(
            text=self.message.content or "",
            finish_reason=self.finish_reason or "stop",
            token_ids=None if ids is None else tuple(ids),
            logprobs=logprobs,
            alternatives=tuple(token.alternatives_of() for token in content)
            if content is not None and has_alternatives
            else None,
        )


class _Usage(BaseModel):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class ChatAnswer(BaseModel):
    """The response of /v1/chat/completions."""

    choices: list[_Choice]
    usage: _Usage | None = None
    prompt_token_ids: list[Count] | None = None

    def replies(self) -> tuple[Reply, ...]:
        """The replies sorted by index."""
        return tuple(choice.reply() for choice in sorted(self.choices, key=lambda choice: choice.index))

    def prompt_ids(self) -> tuple[int, ...] | None:
        return None if self.prompt_token_ids is None else tuple(self.prompt_token_ids)


def describe(error: ValidationError) -> str:
    """The first validation error, with its location."""
    first = error.errors()[0]
    alternatives_of = ".".join(map(str, first["loc"])) or "the body"
    return f"{alternatives_of}: {first['msg']}"
