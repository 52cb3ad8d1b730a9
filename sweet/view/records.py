"""What a run holds about its trajectories, joined: dialogue, score, ranked candidates, pairs.

A large run does not fit in memory as objects, and a table needs a few figures of each row only. So one pass over a
file keeps a `Summary` (or just an id) with the byte offset of its line, and a whole row is read again when it is asked
for. Which files belong together is told by the manifest: scores, candidates and pairs that descend from the rollouts
that are viewed, the newest of each.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from sweet.errors import InputError, UsageError
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.rows import Candidate, CandidateRow, Pair
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import FAULTS, Trajectory

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Summary:
    """What a table shows of one trajectory.

    Attributes:
        ended: how the dialogue ended (answered, out_of_turns, …).
        outcome: how its answer scored (passed, failed, …); None where it was not scored.
        tokens: sampled by the agent; None where nobody counted.
        offset: of its line in the rollouts' file, in bytes.
    """

    id: str
    task_id: str
    ended: str
    outcome: str | None
    reward: float | None
    passed: int | None
    total: int | None
    turns: int
    tokens: int | None
    seconds: float | None
    offset: int

    @property
    def fault(self) -> str:
        return self.ended if self.ended in FAULTS else ""


@dataclass(frozen=True)
class Record:
    """Everything the run holds about one trajectory. `ranked` and `pairs` are by index into `dialogue_history`."""

    trajectory: Trajectory
    score: Score | None = None
    ranked: dict[int, CandidateRow] = field(default_factory=dict)
    pairs: dict[int, list[Pair]] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        return self.trajectory.reward if self.score is None else self.score.reward

    def advantage(self, turn: int) -> float | None:
        """The word of the critic, or of another judge, on the reply that was taken at this turn."""
        taken = self.ranked[turn].taken if turn in self.ranked else None
        return None if taken is None else taken.advantage

    def best_first(self, turn: int) -> list[Candidate]:
        """The candidates of a turn by falling advantage."""
        found = self.ranked[turn].candidates if turn in self.ranked else ()
        return sorted(found, key=lambda candidate: candidate.advantage, reverse=True)

    @property
    def scale(self) -> float:
        """The largest advantage in the dialogue by absolute value: what a full bar stands for."""
        found = [c.advantage for turn in self.ranked.values() for c in (*turn.candidates, turn.taken) if c]
        return max(map(abs, found), default=0.0)


class Records:
    """The trajectories of one rollouts artifact, and what was made from them."""

    def __init__(self, run: Run, from_: str | None = None) -> None:
        self.run = run
        self.rollouts = run.find("rollouts", from_, needed_by="view")
        self.path = run.file(self.rollouts)
        self.scores = self._descendant("scores")
        self.candidates = self._descendant("candidates")
        self.pairs = self._descendant("pairs")

    def _descendant(self, kind: Kind) -> Artifact | None:
        """The newest finished artifact of a kind that was made from these rollouts."""
        made = self.run.manifest().of_kind(kind, "done")
        return next((artifact for artifact in reversed(made) if self._came_from_here(artifact)), None)

    def _came_from_here(self, artifact: Artifact) -> bool:
        try:
            return self.run.input_of(artifact, "rollouts").id == self.rollouts.id
        except UsageError:
            return False

    def summaries(self) -> Iterator[Summary]:
        """One pass over the file, in its order."""
        for offset, row in rows_with_offsets(self.path):
            try:
                yield self._summary(offset, row)
            except (KeyError, TypeError, AttributeError) as error:
                raise InputError(f"The row at byte {offset} is no trajectory: {error!r}.", path=self.path) from error

    def _summary(self, offset: int, row: dict[str, Any]) -> Summary:
        usage = row.get("usage") or {}
        score = self._scores.get(row["id"])
        return Summary(
            id=row["id"],
            task_id=row["task"]["id"],
            ended=row.get("outcome", "answered"),
            outcome=score.outcome if score else None,
            reward=score.reward if score else row.get("reward"),
            passed=score.passed if score else None,
            total=score.total if score else None,
            turns=sum(turn["role"] == "assistant" for turn in row["dialogue_history"]),
            tokens=usage.get("completion_tokens") or None,
            seconds=usage.get("seconds") or None,
            offset=offset,
        )

    @cached_property
    def _scores(self) -> dict[str, Score]:
        """The scores without their details, which are read again for the one that is shown."""
        if self.scores is None:
            return {}
        path = self.run.file(self.scores)
        rows = (_validated(Score, {**row, "detail": {}}, path) for _, row in rows_with_offsets(path))
        return {score.id: score for score in rows}

    @cached_property
    def _score_offsets(self) -> dict[str, list[int]]:
        return self._offsets(self.scores, "id")

    @cached_property
    def _candidate_offsets(self) -> dict[str, list[int]]:
        return self._offsets(self.candidates, "trajectory_id")

    @cached_property
    def _pair_offsets(self) -> dict[str, list[int]]:
        return self._offsets(self.pairs, "trajectory_id")

    def _offsets(self, artifact: Artifact | None, key: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        if artifact is not None:
            for offset, row in rows_with_offsets(self.run.file(artifact)):
                found.setdefault(str(row.get(key)), []).append(offset)
        return found

    def find(self, name: str) -> Summary:
        """The trajectory of this id, or whose id alone begins so.

        Raises:
            UsageError: none, or several; names the nearest.
        """
        beginning: list[Summary] = []
        ids: list[str] = []
        for summary in self.summaries():
            if summary.id == name:
                return summary
            if summary.id.startswith(name):
                beginning.append(summary)
            ids.append(summary.id)
        if len(beginning) == 1:
            return beginning[0]
        elsewhere = None if beginning else self._elsewhere(name)
        if elsewhere is not None:
            raise UsageError(
                f"The trajectory {name!r} is not in {self.rollouts.id} but in {elsewhere}.",
                where=self.path,
                fix=f"--from {elsewhere} --id {name}",
            )
        near = [s.id for s in beginning[:3]] or difflib.get_close_matches(name, ids, n=3, cutoff=0.4) or ids[:1]
        what = "Several trajectories begin with" if beginning else "There is no trajectory"
        raise UsageError(
            f"{what} {name!r} in {self.rollouts.id}.", where=self.path, fix=" or ".join(f"--id {i}" for i in near)
        )

    def _elsewhere(self, name: str) -> str | None:
        """Other rollouts of the run that hold this trajectory, the newest first."""
        for other in reversed(self.run.manifest().of_kind("rollouts", "done")):
            path = self.run.file(other)
            known = other.id != self.rollouts.id and path.exists()
            if known and any(row.get("id") == name for _, row in rows_with_offsets(path)):
                return other.id
        return None

    def record(self, summary: Summary) -> Record:
        """Everything about one trajectory."""
        trajectory = _validated(Trajectory, row_at(self.path, summary.offset), self.path)
        score = next(iter(self._rows(Score, self.scores, self._score_offsets, trajectory.id)), None)
        ranked = self._rows(CandidateRow, self.candidates, self._candidate_offsets, trajectory.id)
        pairs: dict[int, list[Pair]] = {}
        for pair in self._rows(Pair, self.pairs, self._pair_offsets, trajectory.id):
            pairs.setdefault(pair.turn, []).append(pair)
        return Record(trajectory, score, {turn.turn: turn for turn in ranked}, pairs)

    def _rows(self, model: type[R], artifact: Artifact | None, offsets: dict[str, list[int]], name: str) -> list[R]:
        if artifact is None:
            return []
        path = self.run.file(artifact)
        return [_validated(model, row_at(path, offset), path) for offset in offsets.get(name, ())]


def _validated(model: type[R], row: dict[str, Any], path: Path) -> R:
    try:
        return model.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"The row {row.get('id')!r} is damaged: {key}: {first['msg']}.", path=path) from error


def rows_with_offsets(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a JSONL file of a run, each with the byte offset of its line. A torn last line is left out.

    Raises:
        InputError: a line is broken.
    """
    with path.open("rb") as file:
        offset = 0
        for number, line in enumerate(file, 1):
            try:
                if not line.isspace():
                    yield offset, _parsed(line, path, number)
            except InputError:
                if line.endswith(b"\n"):
                    raise
            offset += len(line)


def row_at(path: Path, offset: int) -> dict[str, Any]:
    with path.open("rb") as file:
        file.seek(offset)
        return _parsed(file.readline(), path, None)


def _parsed(line: bytes, path: Path, number: int | None) -> dict[str, Any]:
    try:
        row = from_json(line)
    except ValueError as error:
        raise InputError(f"The JSON is broken: {error}.", path=path, line=number) from error
    if not isinstance(row, dict):
        raise InputError("The row is not a JSON object.", path=path, line=number)
    return row
