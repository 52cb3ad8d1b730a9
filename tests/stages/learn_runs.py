"""Runs as the learning stages find them: dialogues, scores, and a tiny random agent in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sweet.learn.trainee import save_model
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import StageConfig
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory, dump
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer, build_trajectory


class AnyConfig(StageConfig):
    number: int = 0
    """Tells two attempts apart."""


def make_agent(folder: Path, template: str = "chatml", seed: int = 0, layers: int = 1) -> str:
    """A tiny random chat model, saved. Layers take most of the time of a stage that plays or trains it; tests of what
    is divided, added or counted by layer give two."""
    tokenizer = build_tokenizer(TEMPLATES[template])
    folder.mkdir(parents=True)
    save_model(build_model(len(tokenizer), seed, layers=layers), tokenizer, folder)
    return str(folder)


def put(
    run: Run,
    stage: str,
    kind: Kind,
    rows: Iterable[BaseModel | dict[str, Any]],
    inputs: list[Artifact] | None = None,
    **meta: Any,
) -> Artifact:
    """An artifact as `stage` would leave it."""
    with run.attempt(stage, AnyConfig(), inputs=inputs or []) as attempt:
        draft = attempt.start_artifact(kind, meta=meta)
        with JsonlWriter(draft.path) as writer:
            for row in rows:
                writer.write(dump(row) if isinstance(row, Trajectory) else row)
            count = writer.rows
        return attempt.finish_artifact(draft, rows=count)


def score(trajectory: Trajectory, reward: float | None) -> Score:
    outcome = "invalid" if reward is None else "passed" if reward == 1 else "failed"
    return Score.model_validate(
        {
            "id": trajectory.id,
            "task_id": trajectory.task_id,
            "reward": reward,
            "passed": round(10 * (reward or 0)),
            "total": 10,
            "outcome": outcome,
        }
    )


def make_dialogues(tasks: int = 5, samples: int = 3) -> list[tuple[Trajectory, float]]:
    """On each task the first dialogue solves it, the others do not."""
    found = []
    for task in range(tasks):
        for sample in range(samples):
            name = f"{5 if sample == 0 else 7}-{task}-{sample}"
            dialogue = build_trajectory(name, turns=2 + (task + sample) % 2, task=f"task-{task}", sample=sample)
            found.append((dialogue, 1.0 if sample == 0 else 0.1 * sample))
    return found


def make_run(folder: Path, agent: str, tasks: int = 5, samples: int = 3) -> Run:
    """A run with scored dialogues."""
    run = Run.create(folder / "run", task="code")
    dialogues = make_dialogues(tasks, samples)
    rollouts = put(run, "rollout", "rollouts", [t for t, _ in dialogues], agent=agent, tasks="toy", split="train")
    put(run, "eval", "scores", [score(t, reward) for t, reward in dialogues], [rollouts])
    return run
