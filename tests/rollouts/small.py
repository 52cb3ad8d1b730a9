"""A small rollout: the options of twelve short dialogues, and the rows that it wrote."""

from __future__ import annotations

import json
from typing import Any

from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run

TASKS, SAMPLES = 6, 2


def config(**changes: Any) -> RolloutConfig:
    return RolloutConfig(**{"num_tasks": TASKS, "samples": SAMPLES, "max_tokens": 64, "max_turns": 4, **changes})


def rows(run: Run, number: int = 1) -> list[dict[str, Any]]:
    path = run.file(run.artifact(f"rollouts-{number}"))
    return [json.loads(line) for line in path.read_text().splitlines()]
