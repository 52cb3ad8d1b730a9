"""Fill a run with nearly all of its dialogues, as the mock server would answer, without playing them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from sweet.rollouts.dialogue import Assignment
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory, Turn, Usage, dump
from tests.rollouts.mock_server import Draws, said


def fill(run: Path, tasks: Path, draws: Draws, samples: int, missing: int) -> int:
    """Write finished dialogues, omitting `missing` evenly distributed ones. Return the number of written rows."""
    opened_run = Run.open(run)
    (artifact,) = opened_run.manifest().of_kind("rollouts", "partial")
    loaded = task_kind("code").load(str(tasks), "train")
    interval = (len(loaded) * samples) // missing
    index = 0
    with JsonlWriter(opened_run.file(artifact), sums=True) as writer:
        for number, task in enumerate(loaded):
            turns = [Turn(role="user", content=task.problem_description)]
            for turn, role in draws.requests(number):
                text = said(number, turn, role, draws.turns(number))
                agent = {"output": text, "finish_reason": "stop"} if role == "agent" else {}
                turns.append(Turn(role="user" if role == "human" else "assistant", content=text, **agent))
            trajectory = Trajectory(
                id="x",
                task=task,
                dialogue_history=tuple(turns),
                answer=turns[-1].content.partition(":\n")[2],
                usage=Usage(prompt_tokens=900, completion_tokens=300, seconds=draws.total(number)),
            )
            row = dump(trajectory)
            for sample in range(samples):
                if index % interval:
                    named = Assignment(task, sample, 0)
                    history = seeded(row["dialogue_history"], named)
                    writer.write({**row, "id": named.id, "sample": sample, "seed": 0, "dialogue_history": history})
                index += 1
        return writer.rows


def seeded(turns: list[dict[str, Any]], named: Assignment) -> list[dict[str, Any]]:
    """Return the turns with the sampling seeds of this dialogue's agent requests."""
    numbers = itertools.count()
    return [
        {**turn, "sampling_seed": named.turn_seed(next(numbers))} if turn["role"] == "assistant" else turn
        for turn in turns
    ]
