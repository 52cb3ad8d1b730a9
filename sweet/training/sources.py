"""What a training learns from: one artifact, or several of a kind, each with the rollouts behind it.

Learning goes on over rounds: an actor's own dialogues are labelled and paired by themselves, and what is trained next
may learn from all rounds so far. Dialogues of two rounds have the same ids where both were played with the same seed;
of several rollouts, therefore, every id that is told begins with the rollouts it is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from sweet.errors import UsageError
from sweet.hints import option
from sweet.preferences.label import newest_to_learn
from sweet.runs.jsonl import read_jsonl
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_system
from sweet.stages.rows import Pair, Preference
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory

Row = TypeVar("Row", bound=BaseModel)


class _Source(NamedTuple):
    """One artifact to learn from; the ids of its dialogues begin with the prefix when they are told."""

    artifact: Artifact
    rollouts: Artifact
    prefix: str


class Sources:
    """What is learned from.

    Raises:
        UsageError: one is named twice or is not there, or their agents were told different things.

    Attributes:
        inputs: the artifacts, the last one first, then their rollouts, those of the last one first.
    """

    def __init__(self, run: Run, artifacts: Sequence[Artifact]) -> None:
        found = {artifact.id: run.input_of(artifact, "rollouts") for artifact in artifacts}
        if len(found) < len(artifacts):
            twice = next(artifact.id for i, artifact in enumerate(artifacts) if artifact in artifacts[:i])
            raise UsageError("It would be learned from twice.", where=option("from_", twice), fix="name it once")
        rollouts = {behind.id: behind for behind in found.values()}
        _check_told_the_same(run, list(rollouts.values()))
        self.run = run
        self._sources = [
            _Source(artifact, behind, f"{behind.id}/" if len(rollouts) > 1 else "")
            for artifact, behind in zip(artifacts, found.values(), strict=True)
        ]
        nearest = [artifact for source in reversed(self._sources) for artifact in source[:2]]
        every = {artifact.id: artifact for artifact in nearest}
        self.inputs = sorted(every.values(), key=lambda artifact: artifact.kind == "rollouts")

    @classmethod
    def find(cls, run: Run, kind: Kind, named: Sequence[str], *, needed_by: str) -> Sources:
        """Those that are named; else the newest, which scores and rollouts of the test split are not where there are
        others."""
        if named:
            return cls(run, [run.find(kind, name, needed_by=needed_by) for name in named])
        if kind in ("scores", "rollouts"):
            return cls(run, [newest_to_learn(run, kind, None, needed_by=needed_by)])
        return cls(run, [run.find(kind, needed_by=needed_by)])

    def dialogues(self) -> dict[str, Trajectory]:
        """By id."""
        return {row.id: row for row in self._rows("rollouts", Trajectory, "id")}

    def rewards(self) -> dict[str, float]:
        """Of the dialogues that have one, by id, where scores are learned from."""
        rows = self._rows("artifact", Score, "id")
        return {row.id: row.reward for row in rows if row.reward is not None}

    def preferences(self) -> list[Preference]:
        return list(self._rows("artifact", Preference, "chosen", "rejected"))

    def pairs(self) -> list[Pair]:
        return list(self._rows("artifact", Pair, "id", "trajectory_id"))

    def _rows(self, where: Literal["artifact", "rollouts"], row: type[Row], *ids: str) -> Iterator[Row]:
        """The rows of one source after the other, those of its artifact or of its rollouts, with the ids as told."""
        for source in self._sources:
            for found in read_jsonl(self.run.file(getattr(source, where)), row):
                told = {name: source.prefix + getattr(found, name) for name in ids}
                yield found.model_copy(update=told) if source.prefix else found


def _check_told_the_same(run: Run, rollouts: Sequence[Artifact]) -> None:
    """A dialogue is encoded under the system prompt of its agent, and a training has one."""
    first, *others = rollouts
    for other in others:
        if agent_system(run, other) != agent_system(run, first):
            raise UsageError(
                f"The agents of {first.id} and {other.id} were told different things (--prompts, --max-turns).",
                where=option("from_"),
                fix="learn from dialogues under one system prompt",
            )
