"""Leak rates: of rollouts with a real server as the human, of their evaluation, and of the comparison of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.cli.commands.compare import show_comparison
from sweet.results.collect import collect
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.results.compare import CompareConfig, run_compare
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent
from sweet.stages.leaks import LeakTally
from sweet.tasks.trajectory import HumanFault, LeakCounts, Trajectory, leaks_of
from tests.humans.leaking import AGENT, HUMAN, Leaky, agent, tasks

TASKS = 12


def played(folder: Path, human: Leaky, **changes: Any) -> tuple[Run, dict[str, Any], dict[str, Any]]:
    """A run of dialogues with two replies of the human each, with the metrics of its rollout and of its evaluation."""
    folder.mkdir(exist_ok=True)
    run = Run.create(folder / "run", task="code")
    with human.server().running() as url, agent().running() as agent_url:
        models = {"sim": HUMAN, "sim_url": [url], "agent": AGENT, "agent_url": [agent_url]}
        config = RolloutConfig(**{"tasks": str(tasks(folder, TASKS)), "max_turns": 3, **models, **changes})
        rollout = run_rollout(run, config, Silent()).as_json()["metrics"]
    return run, rollout, run_eval(run, EvalConfig(sandbox="unsafe"), Silent()).as_json()["metrics"]


KEYS = ("leak_rate", "leaked_rate", "withheld_rate", "withheld_replies", "tries_per_dialogue")


@pytest.mark.parametrize(
    ("human", "changes", "expected"),
    [
        (Leaky(0), {}, (0.0, 0.0, 0.0, 0, 2.0)),
        (Leaky(2), {}, (1.0, 0.0, 1.0, 4 * TASKS, 6.0)),
        (Leaky(1, "variant 1"), {}, (0.25, 0.0, 0.25, 6, 2.5)),  # of 12 variants 1, 10 and 11
        (Leaky(None), {"human_tries": 3}, (1.0, 1.0, 1.0, 2 * TASKS, 3.0)),
        (Leaky(None), {"human_tries": 1}, (1.0, 1.0, 0.0, 0, 1.0)),
        (Leaky(None), {"protocol": "upstream"}, (1.0, 1.0, 0.0, 0, 2.0)),
    ],
)
def test_rollout_and_eval_report_what_leaked_and_what_was_withheld(
    tmp_path: Path, human: Leaky, changes: dict[str, Any], expected: tuple[float, ...]
) -> None:
    _, rollout, evaluated = played(tmp_path, human, **changes)
    for metrics in (rollout, evaluated):
        assert tuple(metrics[key] for key in KEYS) == expected
        assert metrics["leak_rate_ci_low"] <= expected[0] <= metrics["leak_rate_ci_high"]
        assert metrics["leak_rate_ci_high"] - metrics["leak_rate_ci_low"] > 0.1


def test_a_scripted_human_has_no_leak_rate(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    rollout = run_rollout(run, RolloutConfig(num_tasks=2, max_tokens=32, max_turns=2), Silent()).as_json()
    evaluated = run_eval(run, EvalConfig(sandbox="unsafe"), Silent()).as_json()
    assert not set(KEYS) & (rollout["metrics"].keys() | evaluated["metrics"].keys())


def test_a_comparison_shows_both_and_warns_of_a_rise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, _, _ = played(tmp_path / "a", Leaky(0))
    b, _, _ = played(tmp_path / "b", Leaky(1, "variant 1"), seed=1)
    c, _, _ = played(tmp_path / "c", Leaky(1))
    few = run_compare(a.path, b.path, CompareConfig()).as_json()["metrics"]
    assert few["leaks"]["difference"] == 0.25
    all_ = run_compare(a.path, c.path, CompareConfig()).as_json()["metrics"]
    assert (all_["leaks"]["a"]["leak_rate"], all_["leaks"]["b"]["leak_rate"]) == (0.0, 1.0)
    assert (all_["leaks"]["a"]["tries_per_dialogue"], all_["leaks"]["b"]["tries_per_dialogue"]) == (2.0, 4.0)
    assert all_["leaks"]["p_value"] < 0.01
    (warning,) = [one for one in all_["warnings"] if one["about"] == "leak_rate"]
    assert warning["text"].startswith("Dialogues in which the human leaked the solution: 0.0 % [")
    assert "100.0 %" in warning["text"]
    show_comparison(all_)
    shown = " ".join(capsys.readouterr().out.split())
    assert "The human and the solution" in shown
    assert "tries per" in shown
    same = run_compare(c.path, b.path, CompareConfig()).as_json()["metrics"]
    assert same["leaks"]["difference"] == -0.75


def test_the_report_shows_the_leak_rate_beside_success(tmp_path: Path) -> None:
    run, _, _ = played(tmp_path, Leaky(1, "variant 1"))
    (result,) = collect(run).results
    assert {rate.name: rate.mean for rate in result.rates}["leak_rate"] == 0.25
    assert result.rates[0].name == "success_rate"


@pytest.mark.parametrize(
    ("turns", "fault", "counts"),
    [
        ([{}, {}], None, (2, (), False)),
        ([{"withheld": ["leaked", "loop"]}, {}], None, (4, ("leaked", "loop"), False)),
        ([{}, {"withheld": ["leaked"] * 7, "fault": "leaked"}], "leaked", (9, ("leaked",) * 7, True)),
        ([{}], "leaked", (1, (), True)),  # imported, without a record of the tries
        ([{"fault": "leaked"}, {}], None, (2, (), True)),  # protocol upstream
        ([{"fault": "echo"}], "echo", (1, (), False)),
    ],
)
def test_leaks_are_counted_in_rows_as_in_trajectories(
    turns: list[dict[str, Any]], fault: str | None, counts: tuple[int, tuple[HumanFault, ...], bool]
) -> None:
    history = [{"role": "user", "content": "Write it."}]
    for turn in turns:
        history += [{"role": "assistant", "content": "What?"}, {"role": "user", "content": "This.", **turn}]
    task = {"id": "t", "problem_description": "Write it.", "ground_truth": "x"}
    row = {"id": "d", "task": task, "dialogue_history": history, "fault": fault}
    assert leaks_of(row) == Trajectory.model_validate(row).leaks == LeakCounts(*counts)


def test_replies_that_leave_the_role_are_counted_and_are_no_leaks() -> None:
    tally = LeakTally()
    tally.add("a", LeakCounts(4, ("loop", "roles", "loop"), False))
    tally.add("b", LeakCounts(2, ("leaked",), False))
    found = tally.metrics()
    assert found is not None
    assert found.withheld_faults == {"leaked": 1, "loop": 2, "roles": 1}
    assert (found.as_json()["leak_rate"], found.withheld_replies, found.tries_per_dialogue) == (0.5, 1, 3.0)


def test_no_dialogue_has_no_leak_rate() -> None:
    assert LeakTally().metrics() is None
