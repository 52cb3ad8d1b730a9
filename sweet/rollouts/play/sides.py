"""The two sides of a dialogue with a person: the person's, and the wrappers that record and play back the steps.

`Record` has the steps of a dialogue. A side first returns its recorded steps in their order; then it is asked, and what
it returns is recorded. So a dialogue that is begun again arrives where it was, and nobody is asked twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sweet.humans.base import Human, HumanReply
from sweet.llm.base import ChatClient, Completion, Reply, Sampling
from sweet.rollouts.play.saved import Saved, Step
from sweet.rollouts.play.typed import Seat
from sweet.tasks.base import Message, Task


@dataclass(frozen=True)
class Typed:
    """What the person typed, and as the agent the raw reply that it makes."""

    text: str
    output: str


Ask = Callable[[Sequence[Message]], Awaitable[Typed]]
"""Waits for the person's next message; gets the dialogue that the person answers."""


class Record:
    """The steps of one dialogue, and which of them have been played back."""

    def __init__(self, saved: Saved) -> None:
        self.saved = saved
        self.position = 0

    def next(self, side: Seat) -> Step | None:
        """Return the next recorded step; None if the side is to be asked. Steps that do not fit are forgotten."""
        steps = self.saved.steps
        if self.position < len(steps):
            if steps[self.position].side == side:
                self.position += 1
                return steps[self.position - 1]
            self.saved.cut(self.position)
        return None

    def add(self, step: Step) -> None:
        self.saved.add(step)
        self.position = len(self.saved.steps)

    def undo(self, side: Seat) -> str | None:
        """Forget the last step of a side and all after it. Return what was typed; None if there is no such step."""
        steps = self.saved.steps
        last = next((n for n in reversed(range(len(steps))) if steps[n].side == side), None)
        if last is None:
            return None
        typed = steps[last].typed or ""
        self.saved.cut(last)
        return typed

    def seconds(self, side: Seat) -> float:
        return sum(step.seconds for step in self.saved.steps if step.side == side)


class RecordedAgent:
    """An agent whose completions are recorded and played back (implements `sweet.llm.base.ChatClient`)."""

    def __init__(self, record: Record, inner: ChatClient | None, ask: Ask | None = None) -> None:
        self.record, self.inner, self.ask = record, inner, ask
        self.model = "" if inner is None else inner.model

    limiter = None

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Return the recorded completion, or ask the agent's model or the person; raises what the model raises."""
        step = self.record.next("agent")
        if step is not None and step.completion is not None:
            return step.completion
        began = time.monotonic()
        typed: Typed | None = None
        if self.inner is not None:
            completion = await self.inner.chat(messages, sampling)
        else:
            assert self.ask is not None
            typed = await self.ask(messages)
            completion = Completion((Reply(typed.output, "stop"),), 0, 0, self.model)
        seconds = time.monotonic() - began
        text = None if typed is None else typed.text
        self.record.add(Step(side="agent", completion=completion, typed=text, seconds=seconds))
        return completion

    async def aclose(self) -> None:
        """Do nothing: the model is closed by who opened it."""


class RecordedHuman:
    """A human whose replies are recorded and played back (implements `sweet.humans.base.Human`).

    Args:
        before: awaited before the person is asked; renders the pages that are shown.
    """

    def __init__(
        self,
        record: Record,
        inner: Human | None,
        ask: Ask | None = None,
        before: Callable[[Task, Sequence[Message]], Awaitable[None]] | None = None,
        name: str = "",
    ) -> None:
        self.record, self.inner, self.ask, self.before = record, inner, ask, before
        self.name = name if inner is None else inner.name

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Return the recorded reply, or ask the human or the person; raises what the human raises."""
        step = self.record.next("human")
        if step is not None and step.reply is not None:
            return step.reply
        typed: Typed | None = None
        began = time.monotonic()
        if self.inner is not None:
            reply = await self.inner.reply(task, dialogue)
        else:
            assert self.ask is not None
            if self.before is not None:
                await self.before(task, dialogue)
            began = time.monotonic()
            typed = await self.ask(dialogue)
            reply = HumanReply(typed.text)
        seconds = time.monotonic() - began
        text = None if typed is None else typed.text
        self.record.add(Step(side="human", reply=reply, typed=text, seconds=seconds))
        return reply


class Waiting:
    """The place where a person's side waits for the next message.

    Attributes:
        changed: called when the person becomes the one who is waited for.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._future: asyncio.Future[Typed] | None = None
        self.dialogue: Sequence[Message] = ()

    @property
    def open(self) -> bool:
        """Whether the person is waited for."""
        return self._future is not None and not self._future.done()

    async def ask(self, dialogue: Sequence[Message]) -> Typed:
        self.dialogue = dialogue
        self._future = asyncio.get_running_loop().create_future()
        self._changed()
        try:
            return await self._future
        finally:
            self._future = None

    def give(self, typed: Typed) -> None:
        assert self._future is not None
        self._future.set_result(typed)
