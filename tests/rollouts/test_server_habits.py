"""Servers with habits of their own are played against by a rollout, the best of several, and a ranking."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from sweet.ranking.config import RankConfig
from sweet.ranking.stage import run_rank
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.llm.test_forms_of_requests import HABITS, SAID, usual
from tests.stages.chat_server import ChatServer
from tests.stages.heard import Heard


@pytest.mark.parametrize("name", HABITS)
def test_each_stage_plays_with_the_server(tmp_path: Path, name: str) -> None:
    habit = HABITS[name][0]
    server = ChatServer("m", lambda body: habit(body) or usual(body))
    played = {"tasks": "micro", "num_tasks": 1, "samples": 2, "max_turns": 2, "max_tokens": 400, "agent": "m"}
    with server.running() as url:
        for more in ({}, {"best_of": 2, "judge": "random"}):
            run = Run.create(tmp_path / f"run-{len(more)}", "code")
            metrics = run_rollout(run, RolloutConfig(**played, agent_url=[url], **more), Silent()).metrics
            assert (metrics.episodes, metrics.failed, metrics.turns) == (2, 0, 4)
        ranked = run_rank(
            run, RankConfig(judge="random", agent="m", agent_url=[url], candidates=3, fraction=1.0), Silent()
        )
    assert (ranked.metrics.turns, ranked.metrics.failed, ranked.metrics.candidates) == (4, 0, 12)
    rows = (tmp_path / "run-2" / ranked.artifacts[0].path).read_text()
    assert rows.count(SAID) >= 12


@pytest.mark.parametrize(
    ("reason", "content", "warned"),
    [
        ("length", "What is the", "At 4 of 4 turns the agent's reply was cut off by its limit of tokens"),
        ("content_filter", None, "At 4 of 4 turns the agent's reply was withheld, .* by the content filter"),
        ("stop", "What is the rate?", None),
    ],
)
def test_replies_that_a_server_ended_early_are_told(
    tmp_path: Path, reason: str, content: str | None, warned: str | None
) -> None:
    reporter = Heard()
    choice = {"message": {"content": content}, "finish_reason": reason}
    with ChatServer("m", lambda _: JSONResponse({"choices": [choice]})).running() as url:
        settings = {"num_tasks": 2, "agent": "m", "agent_url": [url], "max_turns": 2, "tasks": "micro"}
        metrics = run_rollout(Run.create(tmp_path / "run"), RolloutConfig(**settings), reporter).metrics
    assert metrics.turns == 4
    told = [text for text in reporter.warnings if "the agent's reply was" in text]
    assert len(told) == (warned is not None)
    assert warned is None or re.match(warned, told[0])
