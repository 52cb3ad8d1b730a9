"""What the rest of the program knows of a language model: messages in, sampled replies out.

A `ChatClient` is an OpenAI-compatible server (`sweet.llm.remote`) or the embedded engine in this process
(`sweet.llm.embedded`); who asks cannot tell which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sweet.errors import SweetError
from sweet.llm.concurrency import AdaptiveLimiter
from sweet.tasks.base import Message

Role = Literal["agent", "sim", "judge"]
"""Whose model it is."""


@dataclass(frozen=True)
class Sampling:
    """How to sample. `temperature` 0 is greedy; `n` replies are drawn independently; `max_tokens` bounds each.

    `logprobs` asks a server for the log-probability of each sampled token; the embedded engine always tells them.
    `likeliest` asks for so many of the likeliest tokens at each place of a reply; a server may not tell them.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    n: int = 1
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0


@dataclass(frozen=True)
class Alternatives:
    """One place of a reply: the text of the token that stands there, and (text, log-probability) of the likeliest."""

    text: str
    top_logprobs: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Reply:
    """One sampled reply.

    Attributes:
        text: without special tokens.
        finish_reason: `stop`, `length` or what else the server says.
        token_ids: the sampled ids, the end-of-turn token included, where the server tells them.
        logprobs: one natural-log probability an id, of the model's distribution at temperature 1, where told.
        places: one a token, where `Sampling.likeliest` asked for them and they were told.
    """

    text: str
    finish_reason: str
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    alternatives: tuple[Alternatives, ...] | None = None


@dataclass(frozen=True)
class Completion:
    """The answer to one request: `replies` has `Sampling.n` entries; `retries` tries before it failed."""

    replies: tuple[Reply, ...]
    prompt_tokens: int
    completion_tokens: int
    model: str
    prompt_token_ids: tuple[int, ...] | None = None
    retries: int = 0


class ChatClient(Protocol):
    """Something that can be asked for replies. Used as an asynchronous context manager by its opener."""

    model: str

    @property
    def limiter(self) -> AdaptiveLimiter | None:
        """The limit of requests at once; None where the client has none, as an engine in this process."""

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies.

        Raises:
            ContextOverflow: prompt and reply do not fit the model's context; asking again cannot help.
            RequestFailed: the server refused or failed this request for good.
            sweet.errors.ServerError: the server could not be reached after the retries.
        """

    async def aclose(self) -> None:
        """Give back connections, threads and memory."""


class RequestFailed(SweetError):
    """One request failed for good (a 4xx, a malformed answer). The item it belongs to fails, not the stage."""


class ContextOverflow(RequestFailed):
    """Prompt and reply do not fit the model's context."""


class EngineFailed(RequestFailed):
    """The model itself failed, whatever was asked of it."""
