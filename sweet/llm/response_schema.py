"""The fields of a server's responses that are read, with bounds. Only texts are required: an optional field that cannot
be read, or is out of its bounds, is taken for absent, so that no other field takes a good reply away.

A text may come in parts. A thought is in `reasoning_content` or `reasoning` (vLLM with a reasoning parser, DeepSeek,
OpenRouter, …), in parts of the type `thinking` (Mistral), or else in the text, from which `sweet.llm.thoughts`
separates it. OpenAI's models return only its number of tokens. Calls of tools are taken as they are, however odd
(`sweet.llm.call_formats.read_calls`). A response with the status 200 may carry an error
(`error_in`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from sweet.llm.base import Alternatives, Reply, Sampling
from sweet.llm.call_formats import read_calls
from sweet.llm.http import HttpError, StatusError
from sweet.llm.thoughts import ALL_MARKS, CHANNELS, Marks, separate, without_thought

T = TypeVar("T")


def _or_absent(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Return what an optional field is read as; None if it cannot be read."""
    try:
        return read(value)
    except ValidationError:
        return None


Optional = Annotated[T | None, WrapValidator(_or_absent)]
Count = Annotated[int, Field(ge=0, lt=2**53)]

MOST_LOGPROB = 1e5
"""Largest absolute value of a log-probability: servers send -9999 for minus infinity."""

_ERROR_STATUS = re.compile(r"[45]\d\d")
ENVELOPE_BYTES = 1 << 20
"""Bytes of a response beyond its replies: further fields, and thoughts that do not count as tokens of the reply."""
TOKEN_BYTES = 256
"""Bytes of a token in a reply: its text in JSON, where six bytes may stand for one, and its id."""
EVENT_BYTES = 1024
"""Bytes of the event with a token of a streamed reply, beside the token: what repeats the response's other fields."""
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
    token = TOKEN_BYTES + LOGPROB_BYTES * logprobs + (EVENT_BYTES if request.get("stream") else 0)
    prompt = PROMPT_ID_BYTES * size if request.get("return_token_ids") else 0
    return ENVELOPE_BYTES + prompt + int(request.get("n", 1)) * sampling.max_tokens * token


class ServedModel(BaseModel):
    """A model in the response of /v1/models; llama.cpp's server says in `owned_by` that it is one."""

    id: str = Field(max_length=1024)
    max_model_len: Any = None
    owned_by: Any = None
    meta: Optional[dict[str, Any]] = None

    @property
    def context(self) -> int | None:
        """The tokens of its context, which vllm and llama.cpp say; None from a server that does not."""
        size = self.max_model_len or (self.meta or {}).get("n_ctx")
        return size if isinstance(size, int) and size > 0 else None


class Served(BaseModel):
    """The response of /v1/models."""

    data: list[ServedModel]


def served_models(raw: object) -> dict[str, ServedModel]:
    """Return the models in the response of /v1/models, or in a list alone, by name; empty if it lists none."""
    try:
        served = Served.model_validate({"data": raw} if isinstance(raw, list) else raw).data
    except ValidationError:
        return {}
    return {model.id: model for model in served}


class _Message(BaseModel):
    content: str | list[Any] | None = None
    refusal: Optional[str] = None
    reasoning_content: Optional[str] = None
    reasoning: Optional[str] = None
    tool_calls: Any = None

    @property
    def text(self) -> str:
        return self._joined("text", "output_text") or self.refusal or ""

    @property
    def thought(self) -> str:
        return (
            self.reasoning_content
            or self.reasoning
            or ("" if isinstance(self.content, str) else self._joined("thinking"))
        )

    def _joined(self, *kinds: str) -> str:
        """Return the text of the parts of some kinds; a plain content is one part that is a text."""
        if not isinstance(self.content, list):
            return self.content or ""
        return "".join(_text_of(part) for part in self.content if _kind_of(part) in kinds)


def _kind_of(part: Any) -> str:
    return str(part.get("type", "text")) if isinstance(part, dict) else "text"


def _text_of(part: Any) -> str:
    """Return the text of a part of a content, which may have parts itself."""
    if isinstance(part, dict):
        inner = part.get(_kind_of(part), part.get("text", ""))
        return "".join(map(_text_of, inner)) if isinstance(inner, list) else _text_of(inner)
    return part if isinstance(part, str) else ""


class _TopLogprob(BaseModel):
    token: str
    logprob: float


class _Token(BaseModel):
    id: Optional[Count] = None
    logprob: float
    token: str = ""
    top_logprobs: Optional[list[_TopLogprob]] = None

    def alternatives_of(self) -> Alternatives:
        top = self.top_logprobs or ()
        return Alternatives(
            self.token, tuple((entry.token, entry.logprob) for entry in top if _is_logprob(entry.logprob))
        )


class _Logprobs(BaseModel):
    content: Optional[list[_Token]] = None


class _Choice(BaseModel):
    index: Optional[Count] = 0
    message: _Message
    finish_reason: Optional[Annotated[str, Field(max_length=100)]] = None
    logprobs: Optional[_Logprobs] = None
    token_ids: Optional[list[Count]] = None
    thought_tokens: Optional[Count] = None

    def reply(self, redacted: Callable[[str], str], opened: bool, known: Sequence[Marks]) -> Reply:
        """The reply, its text as `redacted` returns it. llama.cpp's server has the ids in the log-probabilities.

        Log-probabilities are used only if they can be some and, if there are ids, one for each. `thought_tokens` is a
        field of the embedded server. `opened` and `known` are those of `ChatAnswer.replies`.
        """
        content = self.logprobs.content if self.logprobs else None
        content_ids = [token.id for token in content or () if token.id is not None]
        ids = content_ids if self.token_ids is None and content and len(content_ids) == len(content) else self.token_ids
        has_alternatives = content is not None and any(token.top_logprobs for token in content)
        logprobs = None if content is None else tuple(token.logprob for token in content)
        if logprobs is not None and ids is not None and len(logprobs) != len(ids):
            logprobs = None
        if logprobs is not None and not all(map(_is_logprob, logprobs)):
            logprobs = None
        thought, text = redacted(self.message.thought), redacted(self.message.text)
        thought_tokens = self.thought_tokens
        if thought and ids is not None:
            thought_tokens = len(ids) if not text and not self.message.tool_calls else thought_tokens
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
            tool_calls=tuple(read_calls(self.message.tool_calls, redacted)) or None,
        )
        if thought:
            return without_thought(reply, opened=False, known=known)
        separated = without_thought(reply, known=known)
        if opened and not reply.tool_calls and separated.thought is None and reply.finish_reason == "length":
            return replace(reply, text="", thought=text.strip(), thought_tokens=None if ids is None else len(ids))
        return separated


def _is_logprob(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= MOST_LOGPROB


class _Details(BaseModel):
    reasoning_tokens: Optional[Count] = None


class _Usage(BaseModel):
    prompt_tokens: Optional[Count] = None
    completion_tokens: Optional[Count] = None
    completion_tokens_details: Optional[_Details] = None

    @property
    def reasoning_tokens(self) -> int | None:
        return self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None


class ChatAnswer(BaseModel):
    """The response of /v1/chat/completions."""

    choices: list[_Choice]
    usage: Optional[_Usage] = None
    prompt_token_ids: Optional[list[Count]] = None

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the prompt; 0 if the server does not say."""
        return (self.usage.prompt_tokens or 0) if self.usage else 0

    @property
    def completion_tokens(self) -> int:
        """The tokens of all replies; 0 if the server does not say."""
        return (self.usage.completion_tokens or 0) if self.usage else 0

    def closes_alone(self, known: Sequence[Marks] = ALL_MARKS) -> bool:
        """Whether a reply ends a thought that it did not begin, so that the prompt ends with the opening mark."""
        parts = (separate(choice.message.text, known=known) for choice in self.choices)
        return any(part.closing and not part.opening and part.closing != CHANNELS.closing for part in parts)

    def replies(
        self, redacted: Callable[[str], str] = str, *, opened: bool = False, known: Sequence[Marks] = ALL_MARKS
    ) -> tuple[Reply, ...]:
        """The replies sorted by index.

        Args:
            redacted: removes keys from a text.
            opened: whether the prompts of this server are known to end with the opening mark of a thought: a reply that
                was cut off and has no mark is a thought then.
            known: the marks that a thought may have.
        """
        ordered = sorted(self.choices, key=lambda choice: choice.index or 0)
        replies = tuple(choice.reply(redacted, opened, known) for choice in ordered)
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
        return round(self.completion_tokens * thought / max(written, 1))

    @property
    def reports_usage(self) -> bool:
        return self.usage is not None and None not in (self.usage.prompt_tokens, self.usage.completion_tokens)

    def prompt_ids(self) -> tuple[int, ...] | None:
        return None if self.prompt_token_ids is None else tuple(self.prompt_token_ids)


class FewReplies(HttpError):
    """A response with fewer replies than were requested."""


def error_in(raw: object) -> StatusError | None:
    """Return the error that a response with the status 200 carries, alone or for one of its replies, or because it has
    no replies; else None. Its status is the code of the error if that is one, else 500: it may pass."""
    choices = raw.get("choices") if isinstance(raw, dict) else None
    if not isinstance(raw, dict):
        error: object = f"the response is no JSON object: {raw}" if raw else "the response is empty"
    elif not choices:
        error = raw.get("error") or raw.get("message") or raw.get("detail") or "the response has no replies"
    elif isinstance(choices, list) and (failed := next(filter(_has_failed, choices), None)) is not None:
        error = failed.get("error") or raw.get("error") or "a reply ended with an error"
    else:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int | str) and _ERROR_STATUS.fullmatch(str(code)) else 500
    return StatusError(status, json.dumps({"error": error}).encode(), {})


def _has_failed(choice: Any) -> bool:
    return isinstance(choice, dict) and (bool(choice.get("error")) or choice.get("finish_reason") == "error")
