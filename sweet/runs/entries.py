"""The entries of an index (sweet.runs.index): the position of each row's line, and the few fields that a list shows.

A line is parsed as JSON, but only these fields are validated and kept: a list of dialogues does not need their tokens.
An entry is a flat tuple, so that many thousands are read quickly. It begins with the position of the line in bytes,
without the line feed, and the id of the trajectory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

REQUEST = 160
"""Most characters of a request in a list."""


class RolloutEntry(NamedTuple):
    """A trajectory. `tokens` were sampled by the agent, None if they were not counted; `fault` is of the human;
    `request` is the beginning of what the human asks for, on one line."""

    offset: int
    length: int
    id: str
    task_id: str
    ended: str
    fault: str | None
    sample: int
    seed: int | None
    reward: float | None
    turns: int
    tokens: int | None
    seconds: float | None
    request: str = ""


class ScoreEntry(NamedTuple):
    """A score."""

    offset: int
    length: int
    id: str
    outcome: str
    reward: float | None
    passed: int
    total: int


class RowEntry(NamedTuple):
    """The candidates of a turn, or a pair."""

    offset: int
    length: int
    id: str


E = TypeVar("E", bound=RolloutEntry | ScoreEntry | RowEntry)


class _Row(BaseModel):
    """The fields of a line that its entry needs."""

    def values(self) -> tuple[Any, ...]:
        """Return those of the entry, in its order, after the position of the line."""
        return tuple(value for _, value in self)


class _Task(BaseModel):
    id: str
    problem_description: str = ""

    def beginning(self) -> str:
        """Return the beginning of the request, with single blanks for white space."""
        whole = " ".join(self.problem_description[: 4 * REQUEST].split())
        cut = len(whole) > REQUEST or len(self.problem_description) > 4 * REQUEST
        return f"{whole[: REQUEST - 1].rstrip()}…" if cut else whole


class _Turn(BaseModel):
    role: str


class _Usage(BaseModel):
    completion_tokens: int | None = None
    seconds: float | None = None


class _Trajectory(_Row):
    id: str
    task: _Task
    dialogue_history: list[_Turn]
    outcome: str = "answered"
    fault: str | None = None
    sample: int = 0
    seed: int | None = None
    reward: float | None = None
    usage: _Usage | None = None

    def values(self) -> tuple[Any, ...]:
        usage = self.usage or _Usage()
        turns = sum(turn.role == "assistant" for turn in self.dialogue_history)
        told = self.id, self.task.id, self.outcome, self.fault, self.sample, self.seed, self.reward, turns
        return *told, usage.completion_tokens or None, usage.seconds or None, self.task.beginning()


class _Score(_Row):
    id: str
    outcome: str
    reward: float | None
    passed: int
    total: int


class _OfTrajectory(_Row):
    trajectory_id: str


@dataclass(frozen=True)
class Form(Generic[E]):
    """How the rows of one kind of artifact are indexed."""

    row: type[_Row]
    entry: Callable[..., E]

    def of(self, row: _Row, offset: int, length: int) -> E:
        """Return the entry of a row, by the position of its line."""
        return self.entry(offset, length, *row.values())


ROLLOUTS = Form(_Trajectory, RolloutEntry)
SCORES = Form(_Score, ScoreEntry)
CANDIDATES = PAIRS = Form(_OfTrajectory, RowEntry)
