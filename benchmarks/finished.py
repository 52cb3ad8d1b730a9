"""A run that is nearly done: dialogues as the mock server would have had them, written without playing them."""

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
    """Write a finished dialogue for all of a run's but `missing`, spread over them; how many were written."""
    opened = Run.open(run)
    (artifact,) = opened.manifest().of_kind("rollouts", "partial")
    loaded = task_kind("code").load(str(tasks), "train")
    left = (len(loaded) * samples) // missing
    place = 0
    with JsonlWriter(opened.file(artifact)) as writer:
        for number, task in enumerate(loaded):
            turns = [Turn(role="user", content=task.problem_description)]
            for turn, role in draws.requests(number):
                text = said(number, turn, role, draws.turns(number))
                agent = {"output": text, "finish_reason": "stop"} if role == "agent" else {}
                turns.append(Turn(role="user" if role == "human" else "assistant", content=text, **agent))
            told = Trajectory(
                id="x",
                task=task,
                dialogue_history=tuple(turns),
                answer=turns[-1].content.partition(":\n")[2],
                usage=Usage(prompt_tokens=900, completion_tokens=300, seconds=draws.total(number)),
            )
            row = dump(told)
            for sample in range(samples):
                if place % left:
                    named = Assignment(task, sample, 0)
                    history = seeded(row["dialogue_history"], named)
                    writer.write({**row, "id": named.id, "sample": sample, "seed": 0, "dialogue_history": history})
                place += 1
        return writer.rows


def seeded(turns: list[dict[str, Any]], named: Assignment) -> list[dict[str, Any]]:
    """The turns with the seeds that this dialogue would have sent with the agent's."""
    numbers = itertools.count()
    return [
        {**turn, "sampling_seed": named.turn_seed(next(numbers))} if turn["role"] == "assistant" else turn
        for turn in turns
    ]
