"""An index of a JSONL artifact: the position of each row's line, and the few fields that a list shows.

It is made when the file is opened, and a whole row is read from its position on demand. A line is parsed as JSON, but
only these fields are validated and kept: a list of dialogues does not need their tokens. An entry is a flat tuple, so
that many thousands are read quickly. It begins with the position of the line in bytes, without the line feed, and the
id of the trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from sweet.errors import InputError
from sweet.regular import open_regular
from sweet.runs.jsonl import bounded_lines, is_object, parse_row

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
        columns = self.id, self.task.id, self.outcome, self.fault, self.sample, self.seed, self.reward, turns
        return *columns, usage.completion_tokens or None, usage.seconds or None, self.task.beginning()


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

    def entry_of(self, row: _Row, offset: int, length: int) -> E:
        """Return the entry of a row, by the position of its line."""
        return self.entry(offset, length, *row.values())


ROLLOUTS = Form(_Trajectory, RolloutEntry)
SCORES = Form(_Score, ScoreEntry)
CANDIDATES = PAIRS = Form(_OfTrajectory, RowEntry)


class Index(Generic[E]):
    """The rows of an artifact, as they are when it is opened.

    Attributes:
        path: the artifact.
        entries: in the file's order.

    Raises:
        InputError: a line is damaged, or the file does not exist.
    """

    def __init__(self, path: Path, form: Form[E]) -> None:
        self.path, self.form = path, form
        try:
            with open_regular(path) as file:
                self.entries = list(self._read(file))
        except OSError as error:
            raise InputError(f"The file cannot be read: {error.strerror}.", path=path) from error

    def line(self, entry: E) -> bytes:
        """Read the line of an entry.

        Raises:
            InputError: it no longer matches the entry.
        """
        with suppress(OSError, ValueError), open_regular(self.path) as file:
            file.seek(entry.offset)
            line = file.read(entry.length)
            if self.form.entry_of(self.form.row.model_validate_json(line), entry.offset, entry.length) == entry:
                return line
        what = f"The row of {entry.id} is not where it was: the file was changed in the meantime."
        raise InputError(what, path=self.path, fix="open it again")

    def _read(self, file: BinaryIO) -> Iterator[E]:
        """Parse the lines. The last one may be torn."""
        offset = 0
        for number, line in enumerate(bounded_lines(file, self.path), 1):
            if not line.isspace() and (line.endswith(b"\n") or is_object(line)):
                row = parse_row(line, self.form.row, self.path, number)
                yield self.form.entry_of(row, offset, len(line.removesuffix(b"\n")))
            offset += len(line)
