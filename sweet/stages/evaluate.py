"""`sweet eval`: score the answers of a run's trajectories and tell the rates with their intervals.

What an answer is worth, the scorer of the run's kind of task says (sweet.tasks.scores): hidden tests in the sandbox,
or a page's likeness to the reference. Scores are written one row each in the trajectories' order, as they are known.
A dialogue that ended by a fault (of a server, the clock, the context) scores as one without an answer and is counted
apart. A task whose reference fails by itself is invalid: its rows say so and no rate counts them.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.sandbox.tiers import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.stages.base import OPERATIONAL, Reporter, StageConfig, StageResult
from sweet.stages.best_of import measure_best_of
from sweet.stages.statistics import Comparison, Interval, clustered_mean, compare
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Figure, Score, ScoringRequest, TrajectoryScorer, reward
from sweet.tasks.trajectory import FAULTS, Trajectory

REWARD = "reward"
"""The name of the rewards beside those of the figures."""


class EvalConfig(StageConfig):
    scorer: Literal["strict", "upstream", "both"] = "strict"
    """Code: strict takes the answer as people write it; upstream follows the published evaluator, its defects included;
    both tells the two side by side, and strict's are the rewards."""
    tolerance: float = Field(default=RELATIVE_TOLERANCE, ge=0, lt=1)
    """Code: relative difference within which strict takes floats for equal; 0 wants them equal bit for bit."""
    similarity: str | None = None
    """Pages: what compares screenshots: clip, a directory or hub id of a CLIP or SigLIP model, or a stand-in,
    efficientnet or pixels. Without it clip where its weights are on this machine, else pixels."""
    from_: str | None = None
    """The rollouts to score; without it the newest."""
    compare: Path | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Another run: its newest scores are compared with these, task by task."""
    best_of: Literal["critic"] | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """critic: also tell the success of the best of N dialogues of a task, N = 1, 2, 4, …, chosen by the critic."""
    critic: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """The critic that chooses; the newest finished one where not given."""
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the critic runs, and the model that compares screenshots."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Jail for the answers; auto takes the strongest that works here, unsafe has none."""
    workers: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Answers run at once, or browsers for pages; without it as many as suit the machine."""


def run_eval(run: Run, config: EvalConfig, reporter: Reporter) -> StageResult:
    """Score the trajectories and return the rates."""
    kind = task_kind(run.manifest().task)
    _check_options(kind, config)
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    other = None if config.compare is None else _Other(config.compare)
    request = ScoringRequest(
        run=run.path.absolute(),
        say=reporter.say,
        **{
            name: getattr(config, name)
            for name in ("scorer", "tolerance", "similarity", "sandbox", "workers", "device")
        },
    )
    began = time.monotonic()
    with run.attempt("eval", config, inputs=[rollouts]) as attempt, kind.open_scorer(request) as scorer:
        attempt.environment |= scorer.environment
        theirs = None if other is None else other.values(scorer)
        draft = attempt.start_artifact("scores", meta={**scorer.meta, "scorer": scorer.name, "rollouts": rollouts.id})
        tally = _Tally(scorer.figures)
        with JsonlWriter(draft.path) as writer, reporter.progress("answers", rollouts.rows) as bar:
            for trajectory, score in scorer.score(read_jsonl(run.file(rollouts), Trajectory)):
                writer.write(score)
                tally.add(trajectory, score)
                bar.advance()
        _warn(tally, reporter)
        metrics = {**tally.metrics(), **scorer.environment, "seconds": round(time.monotonic() - began, 3)}
        if other is not None and theirs is not None:
            metrics |= _compared(tally.values, theirs, other.path)
        if config.best_of is not None:
            metrics["best_of"] = measure_best_of(run, rollouts, tally.scores, config.critic, config.device, reporter)
        attempt.metrics.update(metrics)
        artifact = attempt.finish_artifact(draft, rows=len(tally.scores))
    return StageResult("eval", run.path, metrics, [artifact])


def _check_options(kind: TaskKind, config: EvalConfig) -> None:
    """Raise UsageError where an option was given that would decide the rewards of another kind of task."""
    for name in ("scorer", "tolerance", "similarity"):
        if name not in kind.scorer_options and getattr(config, name) != EvalConfig.model_fields[name].default:
            raise UsageError(
                f"--{name} does not concern tasks of the kind {kind.name}.",
                where=f"--{name}",
                fix=f"leave --{name} out",
            )


class _Tally:
    """The scores so far, and what is counted apart."""

    def __init__(self, figures: Mapping[str, Figure]) -> None:
        self.figures = figures
        self.scores: list[Score] = []
        self.values = _Values(figures)
        self.faults: Counter[str] = Counter()
        self.invalid: dict[str, str] = {}

    def add(self, trajectory: Trajectory, score: Score) -> None:
        self.scores.append(score.model_copy(update={"detail": {}}))
        self.values.add(score)
        if trajectory.outcome in FAULTS:
            self.faults[trajectory.outcome] += 1
        if score.outcome == "invalid":
            self.invalid[score.task_id] = str(score.detail.get("why", ""))

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "trajectories": len(self.scores),
            "tasks": len({score.task_id for score in self.scores}),
        }
        for name, figure in self.figures.items():
            rows = self.values.of(name)
            mean = clustered_mean(
                [value for _, value in rows], [task for task, _ in rows], bounds=(figure.low, figure.high)
            )
            found |= _told(name, mean) if rows else dict.fromkeys((name, f"{name}_ci_low", f"{name}_ci_high"))
        outcomes = Counter(score.outcome for score in self.scores)
        found |= {"outcomes": dict(sorted(outcomes.items())), "faults": self.faults.total()}
        found |= {"invalid_tasks": len(self.invalid)}
        return found


class _Values:
    """The values of the rewards and of each figure so far, with their tasks."""

    def __init__(self, figures: Mapping[str, Figure]) -> None:
        self._figures = {REWARD: Figure(reward), **figures}
        self._rows: dict[str, list[tuple[str, float]]] = {name: [] for name in self._figures}

    @property
    def names(self) -> list[str]:
        return list(self._rows)

    def add(self, score: Score) -> None:
        if score.outcome == "invalid":
            return
        for name, figure in self._figures.items():
            value = figure.value(score)
            if value is not None:
                self._rows[name].append((score.task_id, value))

    def of(self, name: str) -> list[tuple[str, float]]:
        return self._rows[name]

    def by_task(self, name: str) -> dict[str, float]:
        """Each task's mean over its dialogues."""
        values: dict[str, list[float]] = {}
        for task, value in self._rows[name]:
            values.setdefault(task, []).append(value)
        return {task: sum(found) / len(found) for task, found in values.items()}


def _told(name: str, interval: Interval) -> dict[str, float]:
    return {
        name: round(interval.mean, 6),
        f"{name}_ci_low": round(interval.low, 6),
        f"{name}_ci_high": round(interval.high, 6),
    }


def _warn(tally: _Tally, reporter: Reporter) -> None:
    for task, why in itertools.islice(tally.invalid.items(), 5):
        reporter.warn(f"Task {task} is invalid and counts in no rate: {why}.")
    if len(tally.invalid) > 5:
        reporter.warn(f"{len(tally.invalid) - 5} more tasks are invalid; their rows say why.")
    if tally.faults:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(tally.faults.items()))
        reporter.warn(f"Dialogues that ended by a fault count as unsolved: {counts}.")


class _Other:
    """The newest scores of another run."""

    def __init__(self, path: Path) -> None:
        self.path, self._run = path, Run.open(path)
        self._artifact: Artifact = self._run.find("scores", needed_by="eval --compare")

    def values(self, scorer: TrajectoryScorer) -> _Values:
        """What they are worth by the figures that are compared.

        Raises:
            UsageError: another scorer made them.
        """
        made_by = self._artifact.meta.get("scorer")
        if made_by != scorer.name:
            raise UsageError(
                f"{self._artifact.id} was scored by {made_by}, these answers are scored by {scorer.name}.",
                where=self._run.file(self._artifact),
                fix=f"sweet eval {self.path} {scorer.option}",
            )
        found = _Values({name: figure for name, figure in scorer.figures.items() if figure.compared})
        for score in read_jsonl(self._run.file(self._artifact), Score):
            found.add(score)
        return found


def _compared(ours: _Values, theirs: _Values, path: Path) -> dict[str, Any]:
    """The win rate by reward, and under `compare` each figure's paired difference."""
    found: dict[str, Any] = {"run": str(path)}
    win_rate: dict[str, float] = {}
    for name in theirs.names:
        try:
            result = compare(ours.by_task(name), theirs.by_task(name))
        except ValueError as error:
            if name == REWARD:
                raise UsageError(
                    "The two runs share no valid task.", where=path, fix="compare runs of the same tasks"
                ) from error
            continue
        if name == REWARD:
            found["tasks"], win_rate = result.tasks, _told("win_rate", result.win_rate)
        else:
            found[name] = _difference(result)
    return {**win_rate, "compare": found}


def _difference(result: Comparison) -> dict[str, Any]:
    return {
        "difference": round(result.difference.mean, 6),
        "ci_low": round(result.difference.low, 6),
        "ci_high": round(result.difference.high, 6),
        "p_value": round(result.p_value, 6),
        "wins": result.wins,
        "losses": result.losses,
        "ties": result.ties,
    }
