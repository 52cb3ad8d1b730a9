"""The person's side of a dialogue and the other one, and the state of playing.

The steps of the dialogue under way are recorded and taken again (`sweet.rollouts.steps`), so a dialogue that is begun
again arrives where it was, and nobody is asked twice. A hidden file beside the rollouts,
`rollouts/.rollouts-1.play.json`, has these steps and the ids of the dialogues that were skipped. It is replaced as a
whole after every step of either side, so that a killed process leaves the state of the last step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from sweet.errors import InputError, first_problem
from sweet.files import replaced
from sweet.humans.base import Human, HumanReply
from sweet.llm.base import ChatClient, Completion, Reply, Sampling
from sweet.regular import read_regular
from sweet.render.page import Renderer
from sweet.render.store import SCREENSHOTS
from sweet.rollouts.play.typed import Role
from sweet.rollouts.prepare import Dialogues
from sweet.rollouts.steps import Step
from sweet.stages.frame import Frame
from sweet.tasks.base import Message, Task

LARGEST = 1 << 26
"""Bytes of a saved file at most."""


class Saved(BaseModel):
    """The state of playing, in memory and on the disk.

    Attributes:
        skipped: the ids of the dialogues that were skipped.
        dialogue: the id of the dialogue under way.
        steps: of it.
        draft: the text that was typed and not sent.
        typed: the text that was sent, until its step is added.
    """

    model_config = ConfigDict(extra="forbid")

    skipped: list[str] = Field(default_factory=list)
    dialogue: str | None = None
    steps: list[Step] = Field(default_factory=list)
    draft: str = ""
    typed: str | None = Field(default=None, exclude=True)
    _path: Path = PrivateAttr()

    @classmethod
    def beside(cls, rollouts: Path) -> Saved:
        """Return the state of playing of a rollouts artifact. Raises InputError if the file is damaged."""
        path = rollouts.with_name(f".{rollouts.stem}.play.json")
        try:
            saved = cls.model_validate_json(read_regular(path, LARGEST))
        except FileNotFoundError:
            saved = cls()
        except ValidationError as error:
            what = f"The dialogue under way cannot be read: {first_problem(error)[1]}."
            raise InputError(what, path=path, fix="remove the file; the dialogue is then begun again") from error
        saved._path = path
        return saved

    def begin(self, dialogue: str | None) -> None:
        """Go on with a dialogue, or begin it if it is not the one under way; None forgets the one under way."""
        if self.dialogue != dialogue:
            self.dialogue, self.steps, self.draft = dialogue, [], ""
            self.write()

    def add(self, step: Step) -> None:
        """Record a step that was added to `steps`."""
        if self.typed is not None:
            self.steps[-1] = step.model_copy(update={"typed": self.typed})
            self.typed = None
        self.draft = ""
        self.write()

    def undo(self, side: Role) -> str | None:
        """Forget the last step of a side and all after it. Return what was typed; None if there is no such step."""
        part = "completion" if side == "agent" else "reply"
        places = (n for n in reversed(range(len(self.steps))) if getattr(self.steps[n], part) is not None)
        last = next(places, None)
        if last is None:
            return None
        typed = self.steps[last].typed or ""
        del self.steps[last:]
        self.write()
        return typed

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


class PersonAgent:
    """A person as the agent (implements `sweet.llm.base.ChatClient`)."""

    def __init__(self, person: Person, model: str) -> None:
        self.person, self.model = person, model

    async def chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Ask the person."""
        typed = await self.person.ask(messages)
        return Completion((Reply(typed.output, "stop"),), 0, 0, self.model)

    async def aclose(self) -> None:
        """Nothing to release."""


@dataclass
class PersonHuman:
    """A person as the human (implements `sweet.humans.base.Human`).

    Attributes:
        before: awaited before the person is asked; renders the pages that are shown.
    """

    person: Person
    name: str
    before: Callable[[Task, Sequence[Message]], Awaitable[None]] | None = None

    async def reply(self, task: Task, dialogue: Sequence[Message]) -> HumanReply:
        """Ask the person."""
        if self.before is not None:
            await self.before(task, dialogue)
        return HumanReply((await self.person.ask(dialogue)).text)


async def open_other_side(
    frame: Frame, dialogues: Dialogues, stack: AsyncExitStack, *, is_human: bool
) -> tuple[ChatClient | None, dict[str | None, Human], Renderer | None]:
    """Return the agent, if the person is the human, else the humans; and what renders the pages that a person sees."""
    if not is_human:
        humans = await dialogues.open_simulated_humans(frame.client, stack, frame.run.path)
        frame.attempt.environment["human"] = ", ".join(human.name for human in humans.values())
        return None, humans, None
    renderer: Renderer | None = None
    agent = await dialogues.open_agent(frame.client, frame, stack)
    if dialogues.kind.visual:
        from sweet.render.browsers import open_browsers

        opening = open_browsers(frame.run.path / SCREENSHOTS, 1, dialogues.rendering)
        renderer = await stack.enter_async_context(opening)
    frame.attempt.environment["agent_model"] = agent.model
    return agent, {}, renderer
