"""The interface to language models: messages in, sampled replies out.

A message may have images (`ImageMessage`). One without stays a `Message`, and so do the messages in stored dialogues:
images are sent and not stored.

A `ChatClient` is either a client of an OpenAI-compatible server (`sweet.llm.remote`) or the embedded engine in this
process (`sweet.llm.embedded`); callers do not need to know which.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field

from sweet.errors import SweetError
from sweet.tasks.base import Message, Tool, ToolCall, with_calls
from sweet.tasks.trajectory import Turn

Role = Literal["agent", "sim", "judge", "writer", "checker"]
"""The role that a model plays."""

Effort = Literal["none", "low", "medium", "high"]
"""How much a model that can think is asked to think before it replies."""

EngineChoice = Literal["auto", "vllm", "embedded", "tinker"]
"""What runs a model that has no server address."""

STARTUP_TIMEOUT = 1800.0
"""Seconds that a vllm may take to become ready: it may have to download and compile first."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of a request.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus sampling keeps this probability mass; 1 keeps everything.
        max_tokens: upper bound on the tokens of each reply, its thought included.
        n: number of independent replies.
        seed: the same seed gives the same replies, where the server supports it.
        logprobs: request the log-probability of each sampled token; the embedded engine always returns them.
        top_logprobs: request so many most likely tokens at each position; a server may not return them.
        max_thought_tokens: after so many tokens of a thought its end is forced. The embedded engine does so; a server
            may ignore it.
        effort: how much the model is asked to think; None is the model's own default.
        stop: texts before which a reply ends, where the server accepts them; the embedded engine does not.
        tools: that are offered to the model.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    n: int = 1
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    max_thought_tokens: int | None = None
    effort: Effort | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True)
class Alternatives:
    """The text of a sampled token, and (text, log-probability) of the most likely tokens at its position."""

    text: str
    top_logprobs: tuple[tuple[str, float], ...]


SAMPLED = ("thought", "thought_tokens", "token_ids", "logprobs", "tool_calls")
"""What replies, turns of the agent and candidates have of what was sampled, beside the text."""


@dataclass(frozen=True)
class Reply:
    """One sampled reply.

    Attributes:
        text: without special tokens, without the thought and without the calls of tools.
        thought: what the model thought before it replied, if it thinks apart from what it says.
        thought_tokens: the number of tokens of the thought with the marks around it, if known; they are the first of
            `token_ids`.
        finish_reason: `stop`, `length` or another value that the server returns.
        token_ids: the sampled ids, of the thought too, including the end-of-turn token, if the server returns them.
        logprobs: natural-log probability of each id under the model's distribution at temperature 1, if returned.
        alternatives: one entry for each token, if `Sampling.top_logprobs` requested them and they were returned.
        tool_calls: that the reply makes, in its order.
    """

    text: str
    finish_reason: str = "stop"
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    alternatives: tuple[Alternatives, ...] | None = None
    thought: str | None = None
    thought_tokens: int | None = None
    tool_calls: tuple[ToolCall, ...] | None = None

    @classmethod
    def of(cls, turn: Turn) -> Reply:
        """Return the reply that the agent gave at a turn."""
        return cls(turn.said, turn.finish_reason or "stop", **{name: getattr(turn, name) for name in SAMPLED})

    @property
    def whole(self) -> str:
        """What is said with the calls that are made, as text; calls have the same text whatever their ids."""
        return with_calls(self.text, self.tool_calls)

    @property
    def ended(self) -> bool:
        """Whether the model ended the reply itself; otherwise it reached a limit."""
        return self.finish_reason != "length"

    @property
    def mean_logprob(self) -> float | None:
        """Mean log-probability per token under the model that sampled it; None where it was not reported."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else None

    @property
    def is_thought_alone(self) -> bool:
        """Whether the model thought until it was cut off or stopped, and said nothing."""
        thinks = self.thought is not None or bool(self.thought_tokens)
        return thinks and not self.text.strip() and not self.tool_calls

    @property
    def says_nothing_yet(self) -> bool:
        """Whether the reply reached the limit of its tokens before anything was said."""
        return not self.ended and not self.text.strip() and not self.tool_calls


@dataclass(frozen=True)
class Completion:
    """The response to one request: `replies` has `Sampling.n` entries; `retries` counts the attempts that failed
    before; `thought_tokens` of the `completion_tokens` are thoughts, counted or estimated; `version` is that of the
    weights that sampled the replies (`sweet.llm.updates`), None where the client does not know it."""

    replies: tuple[Reply, ...]
    prompt_tokens: int
    completion_tokens: int
    model: str
    prompt_token_ids: tuple[int, ...] | None = None
    retries: int = 0
    thought_tokens: int = 0
    version: int | None = None


def seed_of(*parts: object) -> int:
    """Return 31 bits that depend only on the texts of the parts."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big") >> 1


class ChatClient(Protocol):
    """A client that samples replies. The code that opens it must close it with `aclose`."""

    model: str

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Sample replies.

        Raises:
            ContextOverflow: prompt and reply do not fit into the model's context; a retry cannot help.
            RequestFailed: the server refused this request, or it failed permanently.
            sweet.errors.ServerError: the server could not be reached within the retry time-out.
        """

    async def aclose(self) -> None:
        """Release connections, threads and memory."""


class RequestFailed(SweetError):
    """One request failed permanently (a 4xx, a malformed response). Its item fails, not the stage.

    Attributes:
        is_refusal: whether the server refused the request, so that it would refuse it again.
    """

    is_refusal = False


class ContextOverflow(RequestFailed):
    """Prompt and reply do not fit into the model's context."""


class EngineFailed(RequestFailed):
    """The model itself failed, independent of the request."""


_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _check_png(data: bytes) -> bytes:
    if not data.startswith(_SIGNATURE):
        raise ValueError("an image must be a PNG file")
    return data


class ImageMessage(Message):
    """A message whose images, PNG files, come before its text, in order."""

    images: tuple[Annotated[bytes, AfterValidator(_check_png)], ...] = Field(min_length=1, repr=False)


def message_content(message: Message) -> str | list[dict[str, Any]]:
    """A message's content as OpenAI's API has it: its text, or one part for each image, a data: URL, and one for the
    text."""
    if not isinstance(message, ImageMessage):
        return message.content
    urls = [f"data:image/png;base64,{b64encode(png).decode()}" for png in message.images]
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in urls),
        {"type": "text", "text": message.content},
    ]
