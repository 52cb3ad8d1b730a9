"""A finished evaluation: its scores, the dialogues that were scored, and its values by task.

A reference to one is a run (the scores of its result, `sweet.scoring.results.run_result`), or an artifact in a run:
RUN:scores-2, RUN:rollouts-1 (the newest scores of these dialogues). Scores are read row by row, and only ids, tasks and
the values of the metrics are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from sweet.errors import SweetError, UsageError
from sweet.hints import stage
from sweet.runs.jsonl import read_jsonl
from sweet.runs.lineage import input_of, made_of
from sweet.runs.manifest import Artifact, Attempt, Manifest
from sweet.runs.run import Run
from sweet.scoring.results.run_result import result_of
from sweet.stages.intervals import clustered_mean
from sweet.stages.meta import ScoresMeta
from sweet.stages.record import AnyRate, UnknownRate
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import BY_FUNCTION, Metric, Score, reward
from sweet.tasks.tools import MOST_NAMES, summed

V = TypeVar("V")

REWARD = "reward"
"""The name of the rewards, next to those of the metrics."""

TURN_REWARD = "turn_reward_"
"""The beginning of the name of the sums of the rewards of turns, before their own."""


class Values:
    """The values of the rewards and of each metric, by task; an invalid task has none.

    Attributes:
        figures: the metrics by name, the rewards first; last, from the first score that has some, the sums of the
            rewards of turns, which are 0 where no turn of a dialogue has one.
        ids: the ids of each task's dialogues, in the order of the rows, which all values of a task have.
        invalid: the tasks whose own reference fails.
        humans: the values of the dialogues of each human, where dialogues name theirs.
    """

    def __init__(self, figures: Mapping[str, Metric]) -> None:
        metric = next((metric for metric in figures.values() if metric.value is reward), Metric(reward, low=-1.0))
        self.figures = {REWARD: metric, **figures}
        self.ids: dict[str, list[str]] = {}
        self.invalid: set[str] = set()
        self.humans: dict[str, Values] = {}
        self._values: dict[str, dict[str, list[float]]] = {name: {} for name in self.figures}

    def add(self, score: Score) -> None:
        """Count a score; a session of a program counts once, by its first row."""
        if score.session is not None:
            return
        self._add(score)
        if score.human is not None:
            self.humans.setdefault(score.human, Values(self.figures))._add(score)

    def _add(self, score: Score) -> None:
        if score.outcome == "invalid" or score.reward is None:
            self.invalid.add(score.task_id)
            return
        for name in summed(score.turn_rewards.values()):
            self._add_turn_reward(name)
        self.ids.setdefault(score.task_id, []).append(score.id)
        for name, figure in self.figures.items():
            value = figure.value(score)
            if value is not None:
                self._values[name].setdefault(score.task_id, []).append(value)

    def _add_turn_reward(self, name: str) -> None:
        if (key := TURN_REWARD + name) in self.figures:
            return
        if sum(figure.startswith(TURN_REWARD) for figure in self.figures) >= MOST_NAMES:
            raise SweetError(f"The rewards of turns have more than {MOST_NAMES} names.", where=name)
        self.figures[key] = Metric(lambda score: summed(score.turn_rewards.values()).get(name, 0.0), high=0.0)
        self._values[key] = {task: [0.0] * len(ids) for task, ids in self.ids.items()}

    def of(self, name: str) -> dict[str, list[float]]:
        return self._values[name]

    def means(self, name: str) -> dict[str, float]:
        """Return each task's mean over its dialogues."""
        return {task: fmean(values) for task, values in self._values[name].items()}

    def by_human(self, single: str) -> dict[str, Values]:
        """Return the values by human; `single` is the name of the human where dialogues do not name theirs."""
        return self.humans or {single: self}

    def rates(self) -> dict[str, AnyRate]:
        """Return the mean of each metric over dialogues, with its interval over tasks, if a task has a value."""
        return {name: self._rate(name) for name in self.figures}

    def _rate(self, name: str) -> AnyRate:
        rows = [(value, task) for task, values in self._values[name].items() for value in values]
        if not rows:
            return UnknownRate()
        mean = clustered_mean([value for value, _ in rows], [task for _, task in rows], bounds=self.bounds(name))
        return mean.rate()

    def bounds(self, name: str) -> tuple[float, float]:
        """Return the least and the greatest possible value; of rewards of turns those of all, and 0."""
        figure, values = self.figures[name], [value for row in self._values[name].values() for value in row]
        low = min([figure.low, *values])
        return low, max([figure.high, low + 1e-9, *values])


@dataclass(frozen=True)
class Evaluation:
    """Scores of a run, with what the manifest records about them.

    Attributes:
        manifest: as of the lookup of the scores.
        rollouts: the dialogues that were scored; None if the run does not know them.
    """

    run: Run
    manifest: Manifest
    scores: Artifact

    @property
    def name(self) -> str:
        """The reference to it: RUN:scores-2."""
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
        """The rollout; None if the dialogues were played elsewhere."""
        attempt = None if self.rollouts is None else self.manifest.attempt(self.rollouts.attempt)
        return attempt if attempt is not None and attempt.stage == "rollout" else None

    @property
    def played(self) -> dict[str, Any]:
        """The settings of the dialogues: the rollout's configuration, updated by the artifact's meta."""
        config = {} if self.played_by is None else self.played_by.config
        return {**config, **(self.rollouts.meta if self.rollouts is not None else {})}

    @property
    def scorer(self) -> str | None:
        """The name of the scorer. Rewards under different names are not comparable."""
        return ScoresMeta.of(self.scores).scorer

    def same_as(self, other: Evaluation) -> bool:
        return self.scores.id == other.scores.id and self.run.path.resolve() == other.run.path.resolve()

    def of_same_dialogues(self, other: Evaluation) -> bool:
        ours, theirs = self.rollouts, other.rollouts
        same_run = self.run.path.resolve() == other.run.path.resolve()
        return same_run and ours is not None and theirs is not None and ours.id == theirs.id

    def values(self) -> Values:
        """Read the values from the rows of its scores.

        Raises:
            InputError: a row is invalid.
        """
        by_function = (self.scorer or "").startswith(BY_FUNCTION)
        values = Values(self.kind.rewards.metrics() if by_function else self.kind.metrics)
        for score in read_jsonl(self.run.file(self.scores), Score):
            values.add(score)
        return values


def find_evaluation(reference: str | Path, *, needed_by: str) -> Evaluation:
    """Return the evaluation that RUN, RUN:scores-2 or RUN:rollouts-1 refers to; the newest of several.

    Raises:
        UsageError: it does not exist; the error lists those that do.
    """
    path, id = split_reference(str(reference))
    run = Run.open(path)
    manifest = run.manifest()
    if id is None and (result := result_of(manifest)) is not None:
        id = result.scores.id
    if id is None or not id.startswith("rollouts-"):
        return Evaluation(run, manifest, run.find("scores", id, needed_by=needed_by))
    rollouts = run.find("rollouts", id, needed_by=needed_by)
    scored = [e for e in evaluations(run) if e.rollouts is not None and e.rollouts.id == rollouts.id]
    if not scored:
        for scores in made_of(manifest, "scores", rollouts, "partial"):
            run.find("scores", scores.id, needed_by=needed_by)  # raises, and says who makes them or goes on
        raise UsageError(
            f"{needed_by} needs scores, and {rollouts.id} has none yet.",
            where=path,
            fix=stage("eval", path, from_=rollouts.id),
        )
    return scored[-1]


def evaluations(run: Run) -> Iterator[Evaluation]:
    """Yield the finished evaluations of a run whose file of scores exists, the newest last."""
    manifest = run.manifest()
    for scores in manifest.of_kind("scores", "done"):
        if run.file(scores).is_file():
            yield Evaluation(run, manifest, scores)


def distinct(figures: Mapping[str, V]) -> dict[str, V]:
    """Return the paired metrics to show: without the rewards if another metric equals them."""
    twice = any(row == figures[REWARD] for name, row in figures.items() if name != REWARD)
    return {name: row for name, row in figures.items() if not (twice and name == REWARD)}


def split_reference(reference: str) -> tuple[Path, str | None]:
    """Split a reference into RUN and the artifact's id. An existing folder whose name contains a colon is a RUN."""
    folder, colon, id = reference.rpartition(":")
    if colon and folder and id and not Path(reference).exists() and Path(folder).is_dir():
        return Path(folder), id
    return Path(reference), None
