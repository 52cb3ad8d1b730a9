"""Counts of an evaluation: the scores so far, and the leaks, faults and invalid tasks among them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.metrics import EvalMetrics, HumanRates
from sweet.scoring.results.evaluation import TURN_REWARD, Values
from sweet.scoring.results.metrics import SamplesMetrics
from sweet.stages.base import Reporter
from sweet.stages.leaks import LeakTally, model_plays
from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import Metric, Score
from sweet.tasks.trajectory import FAULTS, Trajectory
from sweet.units import count


class Tally:
    """The scores so far, and the counts of leaks, faults and invalid tasks."""

    def __init__(self, figures: Mapping[str, Metric], sim: str | None) -> None:
        self.figures, self.sim = figures, sim
        self.leaks = LeakTally()
        self.scores: list[Score] = []
        self.values = Values(figures)
        self.faults: Counter[str] = Counter()
        self.human_faults: Counter[str] = Counter()
        self.invalid: dict[str, str] = {}

    def add(self, trajectory: Trajectory, score: Score) -> None:
        if trajectory.session is not None:
            return
        self.scores.append(score.model_copy(update={"detail": {}}))
        self.values.add(score)
        if model_plays(trajectory.human or self.sim, self.sim):
            self.leaks.add(trajectory.task_id, trajectory.leaks)
        if trajectory.outcome in FAULTS:
            self.faults[trajectory.outcome] += 1
        if trajectory.fault is not None and trajectory.human is not None:
            self.human_faults[trajectory.human] += 1
        if score.outcome == "invalid":
            self.invalid[score.task_id] = str(score.detail.get("why", ""))

    def metrics(
        self, samples: SamplesMetrics, scored_by: Mapping[str, Any], trained_on_tasks: int | None
    ) -> EvalMetrics:
        rates = self.values.rates()
        outcomes = Counter(score.outcome for score in self.scores)
        humans = {name: self._of_human(name, values) for name, values in sorted(self.values.humans.items())}
        return EvalMetrics(
            trajectories=len(self.scores),
            tasks=len({score.task_id for score in self.scores}),
            trained_on_tasks=trained_on_tasks,
            rates={name: rate for name, rate in rates.items() if name in self.figures or name.startswith(TURN_REWARD)},
            leaks=self.leaks.metrics(),
            outcomes=dict(sorted(outcomes.items())),
            faults=self.faults.total(),
            invalid_tasks=len(self.invalid),
            humans=humans or None,
            samples=samples,
            scored_by=to_jsonable_python(dict(scored_by), fallback=str),
        )

    def _of_human(self, name: str, values: Values) -> HumanRates:
        rates = values.rates()
        return HumanRates(
            dialogues=sum(map(len, values.ids.values())),
            tasks=len(values.ids),
            faults=self.human_faults[name],
            rates={name: rates[name] for name in self.figures},
        )

    def warn(self, reporter: Reporter) -> None:
        """Warn of invalid tasks, and of dialogues that a fault ended."""
        for task, why in itertools.islice(self.invalid.items(), 5):
            reporter.warn(f"Task {task} is invalid and counts in no rate: {why}.")
        if len(self.invalid) > 5:
            reporter.warn(f"Also invalid: {count(len(self.invalid) - 5, 'more task')}; the rows of the scores say why.")
        if self.faults:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
            reporter.warn(f"Dialogues that ended by a fault count as unsolved: {counts}.")


def cost_per_solved_task(run: Run, kind: TaskKind, rollouts: Artifact, scores: Sequence[Score]) -> float | None:
    """Return what the dialogues cost for each task that one of them solved; None if their cost is not recorded, no task
    was solved, or tasks of this kind never are."""
    attempt = run.manifest().attempt(rollouts.attempt)
    cost = None if attempt is None else attempt.metrics.get("cost")
    least = kind.rewards.solved
    if least is None or isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    solved = {score.task_id for score in scores if score.reward is not None and score.reward >= least}
    return round(cost / len(solved), 6) if solved else None
