"""A run of dialogues with an agent on a server whose replies follow from the conversation, its scores, and its tasks.

The same server is asked by whatever plays the exported environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.tasks.base import Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from tests.stages.chat_server import ChatServer

MODEL = "agent-of-rules"
TURNS = 3


def reply_to(tasks: dict[str, tuple[int, Task]], messages: list[dict[str, Any]]) -> str:
    """Solves every fourth task, answers others at once and wrongly, or nearly rightly, and never answers the rest."""
    request = next(message["content"] for message in messages if message["role"] == "user")
    turn = sum(message["role"] == "assistant" for message in messages)
    place, task = tasks[request]
    if place % 4 == 0:
        asks = f"I should ask for {task.facts[0].topic}.\nOUTPUT: {task.facts[0].cues[0]}?"
        return f"OUTPUT:\nI WANT TO ANSWER:\n```python\n{task.ground_truth}\n```" if turn else asks
    if place % 4 == 1:
        return f"I WANT TO ANSWER: {task.ground_truth.splitlines()[0]}\n    return 0"
    if place % 4 == 2:
        return f"What about {task.facts[min(turn, len(task.facts) - 1)].cues[0]}?\n"
    lines = task.ground_truth.splitlines()
    return "I WANT TO ANSWER:\n" + "\n".join([*lines[:-2], lines[-1]]) if turn else "How is it rounded?"


@dataclass(frozen=True)
class Played:
    """A scored run, the server of its agent, and what that was asked."""

    run: Run
    server: ChatServer
    asked: list[list[tuple[str, str]]]

    @property
    def trajectories(self) -> list[Trajectory]:
        return list(read_jsonl(self.run.file(self.run.artifact("rollouts-1")), Trajectory))

    @property
    def rewards(self) -> dict[str, float | None]:
        """The rewards by task."""
        path = self.run.file(self.run.artifact("scores-1"))
        return {score.task_id: score.reward for score in read_jsonl(path, Score)}


def conversations(bodies: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    """The messages of requests, in an order that does not depend on when they came."""
    return sorted([(message["role"], message["content"]) for message in body["messages"]] for body in bodies)


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    tasks: dict[str, tuple[int, Task]] = {}

    def answer(body: dict[str, Any]) -> Response:
        message = {"role": "assistant", "content": reply_to(tasks, body["messages"])}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        found = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        return JSONResponse(found | {"usage": usage})

    first = CodeKind().load("micro", "test")[:8]
    tasks |= {task.problem_description: (place, task) for place, task in enumerate(first)}
    server = ChatServer(MODEL, answer)
    with server.running():
        folder: Path = tmp_path_factory.mktemp("environments")
        run = Run.create(folder / "run")
        config = RolloutConfig(
            tasks="micro", split="test", num_tasks=8, max_turns=TURNS, agent=MODEL, agent_url=[server.url]
        )
        run_rollout(run, config, Silent())
        run_eval(run, EvalConfig(), Silent())
        asked = conversations(server.asked)
        server.asked.clear()
        yield Played(run, server, asked)
