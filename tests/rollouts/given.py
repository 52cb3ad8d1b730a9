"""An agent that says what it is given to say, and the place of a human who is not asked."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.llm.base import Completion, Reply, Sampling
from sweet.tasks.base import Message, ToolCall


class Agent:
    """Replies with the given texts and calls in turn, and keeps what it was asked."""

    model = "given"

    def __init__(self, *replies: str | Sequence[ToolCall] | Reply) -> None:
        self.replies, self.seen, self.samplings = replies, [], []  # type: ignore[var-annotated]

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.seen.append(list(messages))
        self.samplings.append(sampling)
        said = self.replies[min(len(self.seen), len(self.replies)) - 1]
        if isinstance(said, str):
            said = Reply(said, "stop")
        elif not isinstance(said, Reply):
            said = Reply("", "stop", tool_calls=tuple(said))
        return Completion((said,), prompt_tokens=10, completion_tokens=2, model=self.model)

    async def aclose(self) -> None:
        pass


class Nobody:
    """No human is asked."""

    name = "nobody"

    async def reply(self, task: object, dialogue: object) -> None:
        raise AssertionError
