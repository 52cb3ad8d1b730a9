"""The two sides of a dialogue with a person, whose steps are recorded and played back.

A side first returns its recorded steps in their order; then the model or the person is asked, and what it returns is
recorded. So a dialogue that is begun again arrives where it was, and nobody is asked twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sweet.humans.base import Human, HumanReply
from sweet.llm.base import ChatClient, Completion, Reply, Sampling
from sweet.rollouts.play.saved import Saved, Step
from sweet.tasks.base import Message, Task


@dataclass(frozen=True)
class Typed:
    """What the person typed, and as the agent the raw reply that it makes."""

    text: str
    output: str


class Person:
    """Waits for the person's next message.

    Args:
        changed: called when the person becomes the one who is waited for.

    Attributes:
        dialogue: what the person answers.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._message: asyncio.Future[Typed] | None = None
        self.dialogue: Sequence[Message] = ()

    @property
    def is_awaited(self) -> bool:
        return self._message is not None and not self._message.done()

    async def ask(self, dialogue: Sequence[Message]) -> Typed:
        self.dialogue = dialogue
        self._message = asyncio.get_running_loop().create_future()
        self._changed()
        try:
            return await self._message
        finally:
            self._message = None

    def answer(self, typed: Typed) -> None:
        assert self._message is not None
        self._message.set_result(typed)


class RecordedAgent:
    """An agent whose completions are recorded and played back (implements `sweet.llm.base.ChatClient`)."""

    limiter = None

    def __init__(self, saved: Saved, inner: ChatClient | Person, model: str) -> None:
        self.saved, self.inner, self.model = saved, inner, model

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Return the recorded completion, or ask the agent's model or the person; raises what the model raises."""
        step = self.saved.next("agent")
        if step is not None and step.completion is not None:
            return step.completion
        began, text = time.monotonic(), None
        if isinstance(self.inner, Person):
            typed = await self.inner.ask(messages)
            text, completion = typed.text, Completion((Reply(typed.output, "stop"),), 0, 0, self.model)
        else:
            completion = await self.inner.chat(messages, sampling)
        seconds = time.monotonic() - began
        self.saved.add(Step(side="agent", completion=completion, typed=text, seconds=seconds))
        return completion

    async def aclose(self) -> None:
        """Do nothing: the model is closed by who opened it."""


class RecordedHuman:
    """A human whose replies are recorded and played back (implements `sweet.humans.base.Human`).

    Args:
        before: awaited before a person is asked; renders the pages that are shown.
    """

    def __init__(
        self,
        saved: Saved,
        inner: Human | Person,
        name: str,
        before: Callable[[Task, Sequence[Message]], Awaitable[None]] | None = None,
    ) -> None:
        self.saved, self.inner, self.name, self.before = saved, inner, name, before

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Return the recorded reply, or ask the human or the person; raises what the human raises."""
        step = self.saved.next("human")
        if step is not None and step.reply is not None:
            return step.reply
        if self.before is not None:
            await self.before(task, dialogue)
        began, text = time.monotonic(), None
        if isinstance(self.inner, Person):
            typed = await self.inner.ask(dialogue)
            text, reply = typed.text, HumanReply(typed.text)
        else:
            reply = await self.inner.reply(task, dialogue)
        self.saved.add(Step(side="human", reply=reply, typed=text, seconds=time.monotonic() - began))
        return reply
