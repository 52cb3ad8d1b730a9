"""The dialogue under way, which is on the disk after every step of either side.

A hidden file beside the rollouts, `rollouts/.rollouts-1.play.json`, has the steps of one dialogue and the ids of those
that were skipped. It is replaced as a whole, so that a killed process leaves the state of the last step.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import InputError
from sweet.files import UNFINISHED, replaced
from sweet.humans.base import HumanReply
from sweet.llm.base import Completion
from sweet.regular import read_regular
from sweet.rollouts.play.typed import Role

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


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    skipped: list[str] = Field(default_factory=list)
    dialogue: str | None = None
    steps: list[Step] = Field(default_factory=list)
    draft: str = ""


class Saved:
    """The state of playing, in memory and on the disk; and how many steps of the dialogue have been played back.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._content = self._read()

    @classmethod
    def beside(cls, rollouts: Path) -> Saved:
        """Return the state of playing of a rollouts artifact."""
        return cls(rollouts.with_name(f".{rollouts.stem}.play.json"))

    def _read(self) -> _Content:
        try:
            return _Content.model_validate_json(read_regular(self.path, LARGEST))
        except FileNotFoundError:
            return _Content()
        except ValidationError as error:
            what = f"The dialogue under way cannot be read: {error.errors(include_url=False)[0]['msg']}."
            raise InputError(what, path=self.path, fix="remove the file; the dialogue is then begun again") from error

    @property
    def dialogue(self) -> str | None:
        """The id of the dialogue under way."""
        return self._content.dialogue

    @property
    def skipped(self) -> frozenset[str]:
        return frozenset(self._content.skipped)

    @property
    def has_steps(self) -> bool:
        """Whether the dialogue under way has been begun."""
        return bool(self._content.steps)

    @property
    def draft(self) -> str:
        """The text that was typed and not sent."""
        return self._content.draft

    def begin(self, dialogue: str) -> None:
        """Go on with a dialogue, or begin it if it is not the one under way."""
        if self._content.dialogue != dialogue:
            self._content.dialogue, self._content.steps, self._content.draft = dialogue, [], ""
            self.write()

    def rewind(self) -> None:
        """Play the steps back from the first."""
        self._position = 0

    def next(self, side: Role) -> Step | None:
        """Return the next recorded step; None if the side is to be asked. Steps that do not fit are forgotten."""
        steps = self._content.steps
        if self._position == len(steps):
            return None
        if steps[self._position].side != side:
            self._cut(self._position)
            return None
        self._position += 1
        return steps[self._position - 1]

    def add(self, step: Step) -> None:
        self._content.steps.append(step)
        self._content.draft = ""
        self._position = len(self._content.steps)
        self.write()

    def undo(self, side: Role) -> str | None:
        """Forget the last step of a side and all after it. Return what was typed; None if there is no such step."""
        steps = self._content.steps
        last = next((n for n in reversed(range(len(steps))) if steps[n].side == side), None)
        if last is None:
            return None
        typed = steps[last].typed or ""
        self._cut(last)
        return typed

    def seconds(self, side: Role) -> float:
        return sum(step.seconds for step in self._content.steps if step.side == side)

    def _cut(self, length: int) -> None:
        """Forget the steps from `length` on."""
        del self._content.steps[length:]
        self.write()

    def save_draft(self, text: str) -> None:
        self._content.draft = text
        self.write()

    def skip(self, dialogue: str) -> None:
        """Forget a dialogue, and that it is to be played."""
        if dialogue not in self._content.skipped:
            self._content.skipped.append(dialogue)
        self.end()

    def end(self) -> None:
        """Forget the dialogue under way, which was written to the rollouts or skipped."""
        self._content.dialogue, self._content.steps, self._content.draft = None, [], ""
        self.write()

    def write(self) -> None:
        temporary = f"{self.path.name}.{os.getpid()}{UNFINISHED}"
        with replaced(self.path, temporary, make_folders=True, durable=True) as file:
            file.write(self._content.model_dump_json(exclude_none=True).encode("utf-8", "replace"))
