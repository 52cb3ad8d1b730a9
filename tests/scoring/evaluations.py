"""Made-up evaluations: rollouts and scores as the stages record them, with any settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweet.rollouts.config import RolloutConfig
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.evaluation import Evaluation
from sweet.stages.base import digest_of
from sweet.tasks.base import Task

Rewards = Mapping[str, Sequence[float | None]]
"""By task, of its dialogues in the order of their samples; None where the task is invalid."""


def make_task(name: str, text: str = "A price.") -> Task:
    return Task(
        id=name, problem_description=text, ground_truth="def price(h): return 3 * h", test_cases={"1": "price(1)"}
    )


def play(
    run: Run,
    tasks: Sequence[Task],
    samples: int = 1,
    *,
    dataset: str = "micro",
    meta: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Artifact:
    """Rollouts, as `sweet rollout` records them."""
    config = RolloutConfig.model_validate({"tasks": dataset, "split": "test", "samples": samples, **settings})
    digest = digest_of([task.model_dump(mode="json") for task in tasks])
    told = {
        key: getattr(config, key)
        for key in ("task", "tasks", "split", "agent", "sim", "samples", "max_turns", "protocol")
    }
    told |= {"tasks_digest": digest, **(meta or {})}
    with run.attempt("rollout", config, environment={"human": config.sim}) as attempt:
        draft = attempt.start_artifact("rollouts", meta=told)
        with JsonlWriter(draft.path) as writer:
            for sample in range(samples):
                for task in tasks:
                    name = f"{task.id}-s{sample}-r{config.seed}"
                    writer.write({"id": name, "task": task.model_dump(mode="json"), "dialogue_history": []})
        return attempt.finish_artifact(draft, rows=writer.rows)


def grade(
    run: Run,
    rollouts: Artifact,
    rewards: Rewards,
    *,
    seed: int = 0,
    meta: Mapping[str, Any] | None = None,
    **metrics: Any,
) -> Evaluation:
    """Scores, as `sweet eval` records them."""
    with run.attempt("eval", EvalConfig(), inputs=[rollouts]) as attempt:
        told = {"scorer": "strict", "tolerance": 1e-9, "sandbox": "bwrap", "rollouts": rollouts.id, **(meta or {})}
        draft = attempt.start_artifact("scores", meta=told)
        with JsonlWriter(draft.path) as writer:
            for task, row in rewards.items():
                for sample, reward in enumerate(row):
                    writer.write(_score(f"{task}-s{sample}-r{seed}", task, reward))
        attempt.metrics.update(metrics)
        scores = attempt.finish_artifact(draft, rows=writer.rows)
    return Evaluation(run, run.manifest(), scores)


def _score(name: str, task: str, reward: float | None) -> dict[str, Any]:
    outcome = "invalid" if reward is None else "passed" if reward >= 1 else "failed"
    passed = 0 if reward is None else max(0, round(10 * reward))
    return {"id": name, "task_id": task, "reward": reward, "passed": passed, "total": 10, "outcome": outcome}


def evaluate(
    path: Path,
    rewards: Rewards,
    *,
    tasks: Sequence[Task] | None = None,
    dataset: str = "micro",
    kind: str = "code",
    rollouts_meta: Mapping[str, Any] | None = None,
    scores_meta: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Evaluation:
    """A run (made where it is not there) with the rollouts and the scores of these rewards."""
    run = Run.open_or_create(path, kind)
    played = [make_task(name) for name in rewards] if tasks is None else tasks
    samples = settings.pop("samples", max(map(len, rewards.values())))
    rollouts = play(run, played, samples, meta=rollouts_meta, dataset=dataset, **settings)
    return grade(run, rollouts, rewards, seed=settings.get("seed", 0), meta=scores_meta, **(metrics or {}))
