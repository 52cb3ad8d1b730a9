"""`sweet eval`: score the answers of a run's trajectories and tell the rates with their intervals.

Answers are run in the sandbox and written one row each in the trajectories' order, as they are known. A dialogue that
ended by a fault (of a server, the clock, the context) scores as one without an answer and is counted apart. A task
whose reference fails by itself is invalid: its rows say so and no rate counts them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sweet.errors import UsageError
from sweet.runs.cache import cache_folder
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.run import Run
from sweet.sandbox.tiers import TierChoice, open_sandbox
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.stages.base import OPERATIONAL, Reporter, StageConfig, StageResult
from sweet.stages.best_of import measure_best_of
from sweet.stages.statistics import clustered_mean, compare
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.code.expected import Scorer
from sweet.tasks.code.scoring import CodeScorer, Verdict
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import FAULTS, Trajectory


class EvalConfig(StageConfig):
    scorer: Literal["strict", "upstream", "both"] = "strict"
    """strict takes the answer as people write it; upstream follows the published evaluator, its defects included; both
    tells the two side by side, and strict's are the rewards."""
    tolerance: float = Field(default=RELATIVE_TOLERANCE, ge=0, lt=1)
    """Relative difference within which strict takes floats for equal; 0 wants them equal bit for bit."""
    from_: str | None = None
    """The rollouts to score; without it the newest."""
    compare: Path | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Another run: its newest scores are compared with these, task by task."""
    best_of: Literal["critic"] | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """critic: also tell the success of the best of N dialogues of a task, N = 1, 2, 4, …, chosen by the critic."""
    critic: str | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """The critic that chooses; the newest finished one where not given."""
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Where the critic runs."""
    sandbox: TierChoice = Field(default="auto", json_schema_extra=OPERATIONAL)
    """Jail for the answers; auto takes the strongest that works here, unsafe has none."""
    workers: int | None = Field(default=None, ge=1, json_schema_extra=OPERATIONAL)
    """Answers run at once; without it three a core."""


def run_eval(run: Run, config: EvalConfig, reporter: Reporter) -> StageResult:
    """Score the trajectories and return the rates."""
    if run.manifest().task != "code":
        raise UsageError(
            f"eval scores code tasks, and this run is of the kind {run.manifest().task!r}.", where=run.path
        )
    rollouts = run.find("rollouts", config.from_, needed_by="eval")
    rewarded_by: Scorer = "upstream" if config.scorer == "upstream" else "strict"
    theirs = None if config.compare is None else _scores_to_compare(config.compare, rewarded_by)
    began = time.monotonic()
    with (
        run.attempt(
            "eval", config, inputs=[rollouts], environment={"scorer": config.scorer, "tolerance": config.tolerance}
        ) as attempt,
        open_sandbox(config.sandbox, config.workers) as box,
    ):
        attempt.environment["sandbox"] = box.tier
        meta = {"scorer": rewarded_by, "tolerance": config.tolerance, "sandbox": box.tier, "rollouts": rollouts.id}
        draft = attempt.start_artifact("scores", meta=meta)
        tally = _Tally()
        with JsonlWriter(draft.path) as writer, reporter.progress("answers", rollouts.rows) as bar:
            scorer = CodeScorer(box, rewarded_by, config.tolerance, cache_folder("expected"))
            other = CodeScorer(box, "upstream", folder=cache_folder("expected")) if config.scorer == "both" else None
            for trajectory, score in _scored(scorer, other, read_jsonl(run.file(rollouts), Trajectory)):
                writer.write(score)
                tally.add(trajectory, score)
                bar.advance()
        _warn(tally, reporter)
        metrics = {
            **tally.metrics(),
            "scorer": config.scorer,
            "sandbox": box.tier,
            "seconds": round(time.monotonic() - began, 3),
        }
        if theirs is not None and config.compare is not None:
            metrics["compare"] = {"run": str(config.compare), **_compared(tally.scores, theirs, config.compare)}
        if config.best_of is not None:
            metrics["best_of"] = measure_best_of(run, rollouts, tally.scores, config.critic, config.device, reporter)
        attempt.metrics.update(metrics)
        artifact = attempt.finish_artifact(draft, rows=len(tally.scores))
    return StageResult("eval", run.path, metrics, [artifact])


def _scored(
    scorer: CodeScorer, other: CodeScorer | None, trajectories: Iterable[Trajectory]
) -> Iterator[tuple[Trajectory, Score]]:
    """Each trajectory with its score; the two scorers share the jails, and each reads ahead of what has been told."""
    rows = _Shared(trajectories, 3)
    published = itertools.repeat(None) if other is None else other.score(map(_delivered, rows.reader(2)))
    verdicts = scorer.score(map(_delivered, rows.reader(1)))
    for trajectory, verdict, upstream in zip(rows.reader(0), verdicts, published, strict=False):
        yield trajectory, _score(trajectory, verdict, None if upstream is None else upstream.reward)


class _Shared:
    """An iterable that several threads read, each all of it and at its own pace."""

    def __init__(self, items: Iterable[Trajectory], readers: int) -> None:
        self._items = iter(items)
        self._ahead: list[deque[Trajectory]] = [deque() for _ in range(readers)]
        self._lock = threading.Lock()

    def reader(self, number: int) -> Iterator[Trajectory]:
        mine = self._ahead[number]
        while True:
            with self._lock:
                if not mine:
                    for item in itertools.islice(self._items, 1):
                        for queue in self._ahead:
                            queue.append(item)
                if not mine:
                    return
                item = mine.popleft()
            yield item


def _delivered(trajectory: Trajectory) -> tuple[Task, str]:
    return trajectory.task, NO_ANSWER if trajectory.outcome in FAULTS else trajectory.answer


def _score(trajectory: Trajectory, verdict: Verdict, published: float | None) -> Score:
    detail = verdict.detail
    if trajectory.outcome in FAULTS and verdict.outcome != "invalid":
        detail = {"why": f"the dialogue ended by a fault: {trajectory.outcome}", "fault": trajectory.outcome}
    return Score(
        id=trajectory.id,
        task_id=trajectory.task_id,
        reward=verdict.reward,
        passed=verdict.passed,
        total=verdict.total,
        outcome=verdict.outcome,
        upstream_reward=published,
        detail=detail,
    )


class _Tally:
    """The scores so far, and what is counted apart."""

    def __init__(self) -> None:
        self.scores: list[Score] = []
        self.faults: Counter[str] = Counter()
        self.invalid: dict[str, str] = {}

    def add(self, trajectory: Trajectory, score: Score) -> None:
        self.scores.append(score.model_copy(update={"detail": {}}))
        if trajectory.outcome in FAULTS:
            self.faults[trajectory.outcome] += 1
        if score.outcome == "invalid":
            self.invalid[score.task_id] = str(score.detail.get("why", ""))

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "trajectories": len(self.scores),
            "tasks": len({score.task_id for score in self.scores}),
        }
        found |= _rates("", [(score.task_id, score.reward) for score in self.scores])
        if any(score.upstream_reward is not None for score in self.scores):
            found |= _rates("upstream_", [(score.task_id, score.upstream_reward) for score in self.scores])
        outcomes = Counter(score.outcome for score in self.scores)
        found |= {"outcomes": dict(sorted(outcomes.items())), "faults": self.faults.total()}
        found |= {"invalid_tasks": len(self.invalid)}
        return found


def _rates(prefix: str, rewards: list[tuple[str, float | None]]) -> dict[str, Any]:
    """Both rates with their intervals, over the rewards that there are."""
    counted = [(task, reward) for task, reward in rewards if reward is not None]
    tasks = [task for task, _ in counted]
    rates = {
        "success_rate": [float(reward >= 1) for _, reward in counted],
        "tests_passed": [reward for _, reward in counted],
    }
    found: dict[str, Any] = {}
    for name, values in rates.items():
        rate = clustered_mean(values, tasks)
        found |= {
            f"{prefix}{name}": round(rate.mean, 6) if counted else None,
            f"{prefix}{name}_ci_low": round(rate.low, 6) if counted else None,
            f"{prefix}{name}_ci_high": round(rate.high, 6) if counted else None,
        }
    return found


def _warn(tally: _Tally, reporter: Reporter) -> None:
    for task, why in itertools.islice(tally.invalid.items(), 5):
        reporter.warn(f"Task {task} is invalid and counts in no rate: {why}.")
    if len(tally.invalid) > 5:
        reporter.warn(f"{len(tally.invalid) - 5} more tasks are invalid; their rows say why.")
    if tally.faults:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(tally.faults.items()))
        reporter.warn(f"Dialogues that ended by a fault count as unsolved: {counts}.")


def _scores_to_compare(path: Path, scorer: str) -> list[Score]:
    """The newest scores of another run, made by the same scorer."""
    other = Run.open(path)
    artifact = other.find("scores", needed_by="eval --compare")
    made_by = artifact.meta.get("scorer")
    if made_by != scorer:
        raise UsageError(
            f"{artifact.id} was scored by {made_by}, these answers are scored by {scorer}.",
            where=other.file(artifact),
            fix=f"sweet eval {path} --scorer {scorer}",
        )
    return list(read_jsonl(other.file(artifact), Score))


def _compared(ours: list[Score], theirs: list[Score], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (("success_rate", lambda r: float(r >= 1)), ("tests_passed", float)):
        try:
            result = compare(_by_task(ours, value), _by_task(theirs, value))
        except ValueError as error:
            raise UsageError(
                "The two runs share no valid task.", where=path, fix="compare runs of the same tasks"
            ) from error
        found[name] = {
            "difference": round(result.difference.mean, 6),
            "ci_low": round(result.difference.low, 6),
            "ci_high": round(result.difference.high, 6),
            "p_value": round(result.p_value, 6),
            "wins": result.wins,
            "losses": result.losses,
            "ties": result.ties,
        }
        found["tasks"] = result.tasks
    return found


def _by_task(scores: list[Score], value: Callable[[float], float]) -> dict[str, float]:
    """Each valid task's mean over its dialogues."""
    values: dict[str, list[float]] = {}
    for score in scores:
        if score.reward is not None:
            values.setdefault(score.task_id, []).append(value(score.reward))
    return {task: sum(found) / len(found) for task, found in values.items()}
