"""A finished evaluation: which one is meant, what its dialogues were, and its values by task.

It is named as people name it: a run (its newest scores), or an artifact in one, RUN:scores-2, RUN:rollouts-1 (the
newest scores of these dialogues). Scores are read row by row; of each its id, its task and its figures' values are
kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from sweet.errors import UsageError
from sweet.hints import stage
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import input_of
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.scoring.results.statistics import Interval, clustered_mean
from sweet.stages.meta import ScoresMeta
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Metric, Score, reward

V = TypeVar("V")

REWARD = "reward"
"""The name of the rewards beside those of the figures."""


class Values:
    """The values of the rewards and of each figure, by task; an invalid task has none.

    Attributes:
        figures: by name, that of the rewards first.
        ids: of each task's dialogues, in the order of the rows, as all values of a task are.
        invalid: the tasks whose own reference fails.
    """

    def __init__(self, figures: Mapping[str, Metric]) -> None:
        own = next((figure for figure in figures.values() if figure.value is reward), Metric(reward, low=-1.0))
        self.figures = {REWARD: own, **figures}
        self.ids: dict[str, list[str]] = {}
        self.invalid: set[str] = set()
        self._values: dict[str, dict[str, list[float]]] = {name: {} for name in self.figures}

    def add(self, score: Score) -> None:
        if score.outcome == "invalid" or score.reward is None:
            self.invalid.add(score.task_id)
            return
        self.ids.setdefault(score.task_id, []).append(score.id)
        for name, figure in self.figures.items():
            value = figure.value(score)
            if value is not None:
                self._values[name].setdefault(score.task_id, []).append(value)

    def of(self, name: str) -> dict[str, list[float]]:
        return self._values[name]

    def means(self, name: str) -> dict[str, float]:
        """Each task's mean over its dialogues."""
        return {task: fmean(values) for task, values in self._values[name].items()}

    def rates(self) -> dict[str, Interval | None]:
        """The mean of each figure over dialogues, with its interval over tasks; None where no task has a value."""
        return {name: self._rate(name) for name in self.figures}

    def _rate(self, name: str) -> Interval | None:
        rows = [(value, task) for task, values in self._values[name].items() for value in values]
        if not rows:
            return None
        return clustered_mean([value for value, _ in rows], [task for _, task in rows], bounds=self.bounds(name))

    def bounds(self, name: str) -> tuple[float, float]:
        return self.figures[name].low, self.figures[name].high


@dataclass(frozen=True)
class Evaluation:
    """Scores of a run and what the manifest knows of how they came about.

    Attributes:
        manifest: as it was when the scores were looked up.
        rollouts: the dialogues that were scored; None where the run does not know them.
    """

    run: Run
    manifest: Manifest
    scores: Artifact

    @property
    def name(self) -> str:
        """As it can be given: RUN:scores-2."""
        return f"{self.run.path}:{self.scores.id}"

    @cached_property
    def rollouts(self) -> Artifact | None:
        return input_of(self.manifest, self.scores, "rollouts")

    @property
    def kind(self) -> TaskKind:
        return task_kind(self.manifest.task)

    @property
    def scored_by(self) -> Attempt | None:
        return self.manifest.attempt(self.scores.attempt)

    @property
    def played_by(self) -> Attempt | None:
        """The rollout; None where the dialogues were played elsewhere."""
        attempt = None if self.rollouts is None else self.manifest.attempt(self.rollouts.attempt)
        return attempt if attempt is not None and attempt.stage == "rollout" else None

    @property
    def played(self) -> dict[str, Any]:
        """The settings of the dialogues: the rollout's configuration, and what the artifact says of itself."""
        config = {} if self.played_by is None else self.played_by.config
        return {**config, **(self.rollouts.meta if self.rollouts is not None else {})}

    @property
    def scorer(self) -> str | None:
        """What the rewards are by. Rewards under different names are not alike."""
        return ScoresMeta.of(self.scores).scorer

    def same_as(self, other: Evaluation) -> bool:
        return self.scores.id == other.scores.id and self.run.path.resolve() == other.run.path.resolve()

    def of_same_dialogues(self, other: Evaluation) -> bool:
        mine, theirs = self.rollouts, other.rollouts
        same_run = self.run.path.resolve() == other.run.path.resolve()
        return same_run and mine is not None and theirs is not None and mine.id == theirs.id

    def values(self) -> Values:
        """Read from the rows of its scores.

        Raises:
            InputError: a row is broken.
        """
        found = Values(self.kind.metrics)
        for score in read_jsonl(self.run.file(self.scores), Score):
            found.add(score)
        return found


def find_evaluation(reference: str | Path, *, needed_by: str) -> Evaluation:
    """The evaluation that RUN, RUN:scores-2 or RUN:rollouts-1 names; the newest of several.

    Raises:
        UsageError: there is none; names what there is.
    """
    path, id = _parted(str(reference))
    run = Run.open(path)
    if id is None or not id.startswith("rollouts-"):
        scores = run.find("scores", id, needed_by=needed_by)
        return Evaluation(run, run.manifest(), scores)
    rollouts = run.find("rollouts", id, needed_by=needed_by)
    found = [one for one in evaluations(run) if one.rollouts is not None and one.rollouts.id == rollouts.id]
    if not found:
        raise UsageError(
            f"{needed_by} needs scores, and {rollouts.id} has none yet.",
            where=path,
            fix=stage("eval", path, from_=rollouts.id),
        )
    return found[-1]


def evaluations(run: Run) -> Iterator[Evaluation]:
    """The finished evaluations of a run whose rows are there, the newest last."""
    manifest = run.manifest()
    for scores in manifest.of_kind("scores", "done"):
        if run.file(scores).is_file():
            yield Evaluation(run, manifest, scores)


def distinct(figures: Mapping[str, V]) -> dict[str, V]:
    """Paired figures to show: without the rewards where another one is the same."""
    twice = any(row == figures[REWARD] for name, row in figures.items() if name != REWARD)
    return {name: row for name, row in figures.items() if not (twice and name == REWARD)}


def _parted(reference: str) -> tuple[Path, str | None]:
    """RUN and the artifact's id. A folder whose own name has a colon is a folder."""
    folder, colon, id = reference.rpartition(":")
    if colon and folder and id and not Path(reference).exists() and Path(folder).is_dir():
        return Path(folder), id
    return Path(reference), None
