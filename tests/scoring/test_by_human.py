"""Rates by human, in evaluations and comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Group

from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.compare import CompareConfig, run_compare
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.view.comparison import as_markdown, humans, sections
from tests import programs
from tests.scoring.evaluations import evaluate
from tests.view.test_terminal import drawn


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose first dialogues have two humans, and the second ones one."""
    run = Run.create(tmp_path_factory.mktemp("runs") / "run", task="code")
    small = {"num_tasks": 8, "samples": 2, "max_tokens": 64, "max_turns": 5}
    for more in ({"persona": ["plain", "terse"]}, {}):
        run_rollout(run, RolloutConfig(**small, **more), Silent())
        run_eval(run, EvalConfig(), Silent())
    return run


def test_the_rates_of_each_human(run: Run) -> None:
    first, second = (cast(Any, run.manifest().attempts[place].metrics) for place in (1, 3))
    assert "humans" not in second
    assert set(first["humans"]) == {"scripted", "scripted:terse"}
    rows = [json.loads(line) for line in run.file(run.artifact("scores-1")).read_text().splitlines()]
    for name, found in first["humans"].items():
        own = [row["reward"] for row in rows if row["human"] == name]
        assert (found["dialogues"], found["tasks"], found["faults"]) == (len(own), 4, 0) == (8, 4, 0)
        assert found["tests_passed"] == pytest.approx(sum(own) / len(own), abs=1e-6)
        assert found["success_rate_ci_low"] <= found["success_rate"] <= found["success_rate_ci_high"]
    plain = run.file(run.artifact("scores-2")).read_text()
    assert '"human"' not in plain, "one human needs no name"
    text = drawn(Group(*humans(first)), 200)
    assert "scripted:terse" in text
    assert "success rate" in text
    assert humans(second) == []


def test_success_by_human_is_compared_on_the_same_tasks(run: Run) -> None:
    result = run_compare(f"{run.path}:scores-1", f"{run.path}:scores-2", CompareConfig())
    by_human = result.as_json()["metrics"]["by_human"]
    assert by_human["figure"] == "success_rate"
    plain, terse = by_human["humans"]["scripted"], by_human["humans"]["scripted:terse"]
    assert (plain["a_tasks"], plain["b_tasks"], plain["tasks"]) == (4, 8, 4)
    assert (terse["a_tasks"], terse["b_tasks"], terse["tasks"]) == (4, 0, 0)
    # The plain human gives the same replies in both rollouts, which have the same seeds.
    assert plain["difference"] == 0
    assert terse["b"] is None
    assert terse["difference"] is None
    metrics = result.as_json()["metrics"]
    text = drawn(Group(*sections(metrics)), 200)
    assert "By human: success rate" in text
    assert "`scripted:terse`" in as_markdown(metrics)
    assert any(warning["about"] == "sim" for warning in metrics["warnings"])


def test_without_names_there_is_no_table(tmp_path: Path) -> None:
    evaluate(tmp_path / "a", {"x": [1.0], "y": [0.0]})
    evaluate(tmp_path / "b", {"x": [1.0], "y": [1.0]}, sim="other")
    metrics = run_compare(tmp_path / "a", tmp_path / "b", CompareConfig()).as_json()["metrics"]
    assert "by_human" not in metrics


def test_the_command_line(run: Run) -> None:
    done = programs.run([*programs.SWEET, "compare", f"{run.path}:scores-1", f"{run.path}:scores-2"], cwd=run.path)
    assert done.returncode == 0, done.stderr
    assert "By human: success rate" in done.stdout
