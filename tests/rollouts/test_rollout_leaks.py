"""Rollouts with a human that leaks, on a real server: it is asked again, and what it withheld is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.humans.leaking import AGENT, BEHAVES, HUMAN, Leaky, agent, tasks


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def played(run: Run, human: Leaky, **changes: Any) -> list[dict[str, Any]]:
    server = human.server()
    with server.running() as url, agent().running() as agent_url:
        models = {"sim": HUMAN, "sim_url": [url], "agent": AGENT, "agent_url": [agent_url]}
        settings = {"tasks": str(tasks(run.path.parent)), "max_turns": 3, **models}
        result = run_rollout(run, RolloutConfig(**{**settings, **changes}), Silent())
    (artifact,) = result.artifacts
    rows = [json.loads(line) for line in run.file(artifact).read_text().splitlines()]
    usage = [row["usage"] for row in rows]
    assert sum(one["human_prompt_tokens"] for one in usage) == 10 * len(server.asked), "withheld replies are counted"
    assert sum(one["human_completion_tokens"] for one in usage) == 4 * len(server.asked)
    return rows


def human_turns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [turn for row in rows for turn in row["dialogue_history"][1:] if turn["role"] == "user"]


def test_a_human_that_leaks_and_then_behaves_ends_no_dialogue(run: Run) -> None:
    human = Leaky(2)
    rows = played(run, human)
    assert all("fault" not in row and row["outcome"] != "human_error" for row in rows)
    turns = human_turns(rows)
    assert [(turn["content"], turn["withheld"]) for turn in turns] == [(BEHAVES, ["leaked", "leaked"])] * len(turns)
    assert turns
    text = json.dumps([row["dialogue_history"] for row in rows])
    leaked = {prompt.hidden for prompt, _ in human.prompts}
    assert all(json.dumps(one)[1:-1] not in text for one in leaked), "what was withheld reaches no training"


def test_a_human_that_always_leaks_ends_the_dialogue_after_its_tries(run: Run) -> None:
    rows = played(run, Leaky(None), human_tries=3)
    ended = [row for row in rows if row.get("fault") == "leaked"]
    assert ended
    for row in ended:
        last = row["dialogue_history"][-1]
        assert (row["outcome"], last["withheld"], last["fault"]) == ("human_error", ["leaked"] * 2, "leaked")


def test_one_try_ends_the_dialogue_at_the_first_leak(run: Run) -> None:
    rows = played(run, Leaky(1), human_tries=1)
    turns = human_turns(rows)
    assert all("withheld" not in turn and turn["fault"] == "leaked" for turn in turns)
    assert turns


def test_the_published_protocol_shows_the_leak_and_records_it(run: Run) -> None:
    rows = played(run, Leaky(None), protocol="upstream")
    assert all("withheld" not in turn for turn in human_turns(rows))
    assert all(row["outcome"] != "human_error" for row in rows)
    first = [row["dialogue_history"][2] for row in rows]
    assert all(turn["fault"] == "leaked" for turn in first), "what is said again gives away nothing more"
    assert first
