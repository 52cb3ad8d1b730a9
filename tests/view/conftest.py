"""A run with scored trajectories, ranked candidates and pairs, in the form of the stages."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.stages.base import StageConfig
from sweet.tasks.base import Task
from sweet.tasks.trajectory import Trajectory, Turn, Usage, dump

HOSTILE = "\x1b[31mred \x1b]0;title\x07 \u202e <script>alert(1)</script> [bold]x[/bold] [/x] ```"
"""Hostile output of a model: escape sequences, an override, HTML, rich markup, an unclosed fence."""


class AnyConfig(StageConfig):
    number: int = 0
    """Distinguishes two attempts."""


def task(number: int) -> Task:
    return Task(
        id=f"task-{number}",
        problem_description=f"Write a function that adds {number}. The signature is: def add(a)",
        ground_truth=f"def add(a):\n    return a + {number}",
        test_cases={"test1": "add(1)", "test2": "add(2)"},
    )


def trajectory(number: int, **changes: Any) -> Trajectory:
    about = task(number // 2)
    turns = (
        Turn(role="user", content=about.problem_description),
        Turn(
            role="assistant", content="Which number?", output="I must ask. OUTPUT: Which number?", token_ids=(1, 2, 3)
        ),
        Turn(role="user", content="The usual one."),
        Turn(role="assistant", content=f"I WANT TO ANSWER: def add(a): return a + {number}", finish_reason="length"),
    )
    fields: dict[str, Any] = {
        "id": f"t{number:03d}",
        "task": about,
        "dialogue_history": turns,
        "answer": f"```python\ndef add(a):\n    return a + {number}\n```",
        "usage": Usage(completion_tokens=100 + number, seconds=1.5 * number),
    }
    return Trajectory(**{**fields, **changes})


def score(number: int, reward: float) -> dict[str, Any]:
    passed = round(reward * 2)
    return {
        "id": f"t{number:03d}",
        "task_id": f"task-{number // 2}",
        "reward": reward,
        "passed": passed,
        "total": 2,
        "outcome": "passed" if reward == 1 else "failed",
        "detail": {
            "tests": {
                "test1": {"passed": passed > 0, "expected": "1", "got": "1" if passed > 0 else "7"},
                "test2": {"passed": passed > 1, "expected": "2", "got": "2" if passed > 1 else f"raised {HOSTILE}"},
            }
        },
    }


def made(run: Run, stage: str, kind: Kind, rows: Iterable[Any], inputs: list[Artifact], number: int = 0) -> Artifact:
    with run.attempt(stage, AnyConfig(number=number), inputs=inputs) as attempt:
        draft = attempt.start_artifact(kind)
        with JsonlWriter(draft.path) as writer:
            for row in rows:
                writer.write(row)
            count = writer.rows
        return attempt.finish_artifact(draft, rows=count)


TRAJECTORIES = 6
PAIR = {
    "id": "t001-1-0",
    "task_id": "task-0",
    "trajectory_id": "t001",
    "turn": 1,
    "observation": [],
    "chosen": {"text": "Which number?", "advantage": 0.25},
    "rejected": {"text": HOSTILE, "advantage": -0.5},
}


@pytest.fixture
def run(tmp_path: Path, made_run: Path) -> Run:
    """A copy of `made_run`, of the test's own."""
    shutil.copytree(made_run, tmp_path / "run")
    return Run.open(tmp_path / "run")


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six trajectories of three tasks, rewards 0, 0.5, 1, 0, 0.5, 1; the first turn of t001 was ranked."""
    run = Run.create(tmp_path_factory.mktemp("made") / "run", task="code")
    rollouts = made(run, "rollout", "rollouts", map(dump, map(trajectory, range(TRAJECTORIES))), [])
    made(run, "eval", "scores", [score(n, (n % 3) / 2) for n in range(TRAJECTORIES)], [rollouts])
    texts = ["Which number?", HOSTILE, "No idea."]
    ranked = {
        "trajectory_id": "t001",
        "task_id": "task-0",
        "turn": 1,
        "observation": [],
        "candidates": [
            {"text": text, "advantage": value, "logprob": -1.0, "reference": -1.0, "tokens": 3}
            for text, value in zip(texts, (0.25, -0.5, 0.0), strict=True)
        ],
        "taken": {"text": texts[0], "advantage": 0.25, "logprob": -1.0, "reference": -1.25, "tokens": 3},
    }
    candidates = made(run, "rank", "candidates", [ranked], [rollouts])
    made(run, "pair", "pairs", [PAIR], [candidates])
    return run.path
