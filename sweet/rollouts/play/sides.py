"""The two sides of a dialogue with a person, whose steps are recorded and played back.

A side first returns its recorded steps in their order; then the model or the person is asked, and what it returns is
recorded. So a dialogue that is begun again arrives where it was, and nobody is asked twice.

A hidden file beside the rollouts, `rollouts/.rollouts-1.play.json`, has the steps of the dialogue under way and the ids
of those that were skipped. It is replaced as a whole after every step of either side, so that a killed process leaves
the state of the last step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from sweet.errors import InputError
from sweet.files import replaced
from sweet.humans.base import Human, HumanReply
from sweet.llm.base import ChatClient, Completion, Reply, Sampling
from sweet.regular import read_regular
from sweet.render.page import Renderer
from sweet.render.store import SCREENSHOTS
from sweet.rollouts.play.typed import Role
from sweet.rollouts.prepare import Dialogues
from sweet.stages.frame import Frame
from sweet.tasks.base import Message, Task

LARGEST = 1 << 26
"""Bytes of a saved file at most."""


class Step(BaseModel):
    """What one side did: the agent's completion, or the human's reply.

    Attributes:
        typed: what the person typed; None on the other side.
        seconds: that the side took.
    """

    model_config = ConfigDict(frozen=True)

    side: Role
    completion: Completion | None = None
    reply: HumanReply | None = None
    typed: str | None = None
    seconds: float = Field(default=0.0, ge=0)


class Saved(BaseModel):
    """The state of playing, in memory and on the disk; and how many steps of the dialogue have been played back.

    Attributes:
        skipped: the ids of the dialogues that were skipped.
        dialogue: the id of the dialogue under way.
        steps: of it.
        draft: the text that was typed and not sent.
    """

    model_config = ConfigDict(extra="forbid")

    skipped: list[str] = Field(default_factory=list)
    dialogue: str | None = None
    steps: list[Step] = Field(default_factory=list)
    draft: str = ""
    _path: Path = PrivateAttr()
    _position: int = PrivateAttr(default=0)

    @classmethod
    def beside(cls, rollouts: Path) -> Saved:
        """Return the state of playing of a rollouts artifact. Raises InputError if the file is damaged."""
        path = rollouts.with_name(f".{rollouts.stem}.play.json")
        try:
            saved = cls.model_validate_json(read_regular(path, LARGEST))
        except FileNotFoundError:
            saved = cls()
        except ValidationError as error:
            what = f"The dialogue under way cannot be read: {error.errors(include_url=False)[0]['msg']}."
            raise InputError(what, path=path, fix="remove the file; the dialogue is then begun again") from error
        saved._path = path
        return saved

    def begin(self, dialogue: str | None) -> None:
        """Go on with a dialogue, or begin it if it is not the one under way; None forgets the one under way."""
        if self.dialogue != dialogue:
            self.dialogue, self.steps, self.draft = dialogue, [], ""
            self.write()

    def rewind(self) -> None:
        """Play the steps back from the first."""
        self._position = 0

    def next(self, side: Role) -> Step | None:
        """Return the next recorded step; None if the side is to be asked. Steps that do not fit are forgotten."""
        if self._position == len(self.steps):
            return None
        if self.steps[self._position].side != side:
            self._cut(self._position)
            return None
        self._position += 1
        return self.steps[self._position - 1]

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.draft = ""
        self._position = len(self.steps)
        self.write()

    def undo(self, side: Role) -> str | None:
        """Forget the last step of a side and all after it. Return what was typed; None if there is no such step."""
        last = next((n for n in reversed(range(len(self.steps))) if self.steps[n].side == side), None)
        if last is None:
            return None
        typed = self.steps[last].typed or ""
        self._cut(last)
        return typed

    def seconds(self, side: Role) -> float:
        return sum(step.seconds for step in self.steps if step.side == side)

    def _cut(self, length: int) -> None:
        """Forget the steps from `length` on."""
        del self.steps[length:]
        self.write()

    def save_draft(self, text: str) -> None:
        self.draft = text
        self.write()

    def skip(self, dialogue: str) -> None:
        """Forget a dialogue, and that it is to be played."""
        if dialogue not in self.skipped:
            self.skipped.append(dialogue)
        self.begin(None)

    def write(self) -> None:
        with replaced(self._path, make_folders=True, durable=True) as file:
            file.write(self.model_dump_json(exclude_none=True).encode("utf-8", "replace"))


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


@dataclass
class RecordedHuman:
    """A human whose replies are recorded and played back (implements `sweet.humans.base.Human`).

    Attributes:
        before: awaited before a person is asked; renders the pages that are shown.
    """

    saved: Saved
    inner: Human | Person
    name: str
    before: Callable[[Task, Sequence[Message]], Awaitable[None]] | None = None

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


async def open_other_side(
    frame: Frame, dialogues: Dialogues, stack: AsyncExitStack, *, is_human: bool
) -> tuple[ChatClient | None, dict[str | None, Human], Renderer | None]:
    """Return the agent, if the person is the human, else the humans; and what renders the pages that a person sees."""
    if not is_human:
        humans = await dialogues.open_simulated_humans(frame.client, frame, stack, frame.run.path)
        frame.attempt.environment["human"] = ", ".join(human.name for human in humans.values())
        return None, humans, None
    renderer: Renderer | None = None
    agent = await dialogues.open_agent(frame.client, frame, stack)
    if dialogues.kind.visual:
        from sweet.render.on_ray import open_renderer

        opening = open_renderer(frame.run.path / SCREENSHOTS, 1, say=frame.say, settings=dialogues.rendering)
        renderer = await stack.enter_async_context(opening)
    frame.attempt.environment["agent_model"] = agent.model
    return agent, {}, renderer
