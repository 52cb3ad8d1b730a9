"""The fields of a server's responses that are read, with bounds. Only texts are required; all optional fields are
validated too.

A thought is in `reasoning_content` or `reasoning` (vLLM with a reasoning parser, DeepSeek, OpenRouter, …), or else in
the text, from which `sweet.llm.thoughts` separates it. OpenAI's models return only its number of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from sweet.llm.base import Alternatives, Reply, Sampling
from sweet.llm.thoughts import CHANNELS, separate, without_thought

Count = Annotated[int, Field(ge=0, lt=2**53)]

MOST_LOGPROB = 1e5
"""Largest absolute value of a log-probability: servers send -9999 for minus infinity."""

ENVELOPE_BYTES = 1 << 20
"""Bytes of a response beyond its replies: further fields, and thoughts that do not count as tokens of the reply."""
TOKEN_BYTES = 256
"""Bytes of a token in a reply: its text in JSON, where six bytes may stand for one, and its id."""
LOGPROB_BYTES = 512
"""Bytes of a log-probability with the token's text and its bytes as a list of numbers."""
PROMPT_ID_BYTES = 12
"""Bytes of the id of a token of the prompt; a prompt has at most as many tokens as its request has bytes."""


def most_bytes(request: Mapping[str, Any], sampling: Sampling, size: int) -> int:
    """Return the bytes that the response to a request may have.

    Args:
        request: the body of the request.
        size: its bytes.
    """
    logprobs = 1 + int(request.get("top_logprobs") or 0) if request.get("logprobs") else 0
    token = TOKEN_BYTES + LOGPROB_BYTES * logprobs
    prompt = PROMPT_ID_BYTES * size if request.get("return_token_ids") else 0
    return ENVELOPE_BYTES + prompt + int(request.get("n", 1)) * sampling.max_tokens * token


class _Model(BaseModel):
    id: str = Field(max_length=1024)


class Served(BaseModel):
    """The response of /v1/models."""

    data: list[_Model]

    @property
    def names(self) -> list[str]:
        return [model.id for model in self.data]


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


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
            self.token, tuple((entry.token, entry.logprob) for entry in top if _is_logprob(entry.logprob))
        )


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    index: Count = 0
    message: _Message
    finish_reason: str | None = Field(default=None, max_length=100)
    logprobs: _Logprobs | None = None
    token_ids: list[Count] | None = None
    thought_tokens: Count | None = None

    def reply(self, redacted: Callable[[str], str], opened: bool) -> Reply:
        """The reply, its text as `redacted` returns it.

        Log-probabilities are used only if they can be some and, if there are ids, one for each. `thought_tokens` is a
        field of the embedded server. `opened` as for `ChatAnswer.replies`.
        """
        ids = self.token_ids
        content = self.logprobs.content if self.logprobs else None
        has_alternatives = content is not None and any(token.top_logprobs for token in content)
        logprobs = None if content is None else tuple(token.logprob for token in content)
        if logprobs is not None and ids is not None and len(logprobs) != len(ids):
            logprobs = None
        if logprobs is not None and not all(map(_is_logprob, logprobs)):
            logprobs = None
        thought = redacted(self.message.reasoning_content or self.message.reasoning or "")
        text = redacted(self.message.content or "")
        thought_tokens = self.thought_tokens
        if thought and ids is not None:
            thought_tokens = len(ids) if not text else thought_tokens
            thought_tokens = None if thought_tokens is None else min(thought_tokens, len(ids))
        reply = Reply(
            text=text.lstrip("\r\n") if thought else text,
            finish_reason=redacted(self.finish_reason or "stop"),
            token_ids=None if ids is None else tuple(ids),
            logprobs=logprobs,
            alternatives=tuple(token.alternatives_of() for token in content)
            if content is not None and has_alternatives
            else None,
            thought=thought.strip() if thought or thought_tokens is not None else None,
            thought_tokens=thought_tokens,
        )
        if thought:
            return without_thought(reply, opened=False)
        separated = without_thought(reply)
        if opened and separated.thought is None and reply.finish_reason == "length":
            return replace(reply, text="", thought=text.strip(), thought_tokens=None if ids is None else len(ids))
        return separated


def _is_logprob(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= MOST_LOGPROB


class _Details(BaseModel):
    reasoning_tokens: Count | None = None


class _Usage(BaseModel):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    completion_tokens_details: _Details | None = None

    @property
    def reasoning_tokens(self) -> int | None:
        return self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None


class ChatAnswer(BaseModel):
    """The response of /v1/chat/completions."""

    choices: list[_Choice]
    usage: _Usage | None = None
    prompt_token_ids: list[Count] | None = None

    @property
    def closes_alone(self) -> bool:
        """Whether a reply ends a thought that it did not begin, so that the prompt ends with the opening mark."""
        parts = (separate(choice.message.content or "") for choice in self.choices)
        return any(part.closing and not part.opening and part.closing != CHANNELS.closing for part in parts)

    def replies(self, redacted: Callable[[str], str] = str, *, opened: bool = False) -> tuple[Reply, ...]:
        """The replies sorted by index.

        Args:
            redacted: removes keys from a text.
            opened: whether the prompts of this server are known to end with the opening mark of a thought: a reply that
                was cut off and has no mark is a thought then.
        """
        ordered = sorted(self.choices, key=lambda choice: choice.index)
        replies = tuple(choice.reply(redacted, opened) for choice in ordered)
        thought_tokens = None if self.usage is None else self.usage.reasoning_tokens
        if len(replies) == 1 and thought_tokens and replies[0].token_ids is None:
            return (replace(replies[0], thought_tokens=thought_tokens),)
        return replies

    def thought_tokens(self, replies: Sequence[Reply]) -> int:
        """The tokens of all thoughts: as the server counts them, else counted, else estimated by their characters.

        vLLM counts none where the chat template writes the opening mark; a count of 0 is read only if nothing was
        thought.
        """
        if self.usage is not None and self.usage.reasoning_tokens:
            return self.usage.reasoning_tokens
        if all(reply.thought is None or reply.thought_tokens is not None for reply in replies):
            return sum(reply.thought_tokens or 0 for reply in replies)
        thought = sum(len(reply.thought or "") for reply in replies)
        written = thought + sum(len(reply.text) for reply in replies)
        return round((self.usage.completion_tokens if self.usage else 0) * thought / max(written, 1))

    def prompt_ids(self) -> tuple[int, ...] | None:
        return None if self.prompt_token_ids is None else tuple(self.prompt_token_ids)


def describe(error: ValidationError) -> str:
    """The first validation error, with its location."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}"
