"""`sweet eval` on a run: rows, rates, faults, invalid tasks, comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from sweet.scoring.stage import run_eval
from sweet.stages.base import Silent, StageConfig
from sweet.tasks.base import Task
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Outcome, Trajectory, Turn, dump

GOOD = "def price(h):\n    return 3 * h"
BAD = "def price(h):\n    return 3 if h == 1 else 0"
REQUEST = Turn(role="user", content="A price.")


def trajectory(name: str, task: str, answer: str, truth: str = GOOD, outcome: Outcome = "answered") -> Trajectory:
    tests = {"test1": "price(1)", "test2": "price(2)"}
    problem = Task(id=task, problem_description="A price.", ground_truth=truth, test_cases=tests)
    return Trajectory(id=name, task=problem, dialogue_history=(REQUEST,), answer=answer, outcome=outcome)


def make_run(path: Path, *trajectories: Trajectory, kind: str = "code") -> Run:
    run = Run.open_or_create(path, kind)
    with run.attempt("rollout", StageConfig()) as attempt:
        draft = attempt.start_artifact("rollouts")
        with JsonlWriter(draft.path) as writer:
            for row in trajectories:
                writer.write(dump(row))
        attempt.finish_artifact(draft, rows=len(trajectories))
    return run


def evaluate(run: Run, **settings: Any) -> tuple[dict[str, Any], list[Score]]:
    result = run_eval(run, EvalConfig(workers=1, **settings), Silent())
    (artifact,) = result.artifacts
    assert result.as_json()["artifacts"][0]["kind"] == "scores"
    rows = list(read_jsonl(run.file(artifact), Score))
    assert artifact.rows == len(rows) == result.metrics.trajectories
    return result.metrics.as_json(), rows


def test_rows_and_rates(tmp_path: Path) -> None:
    run = make_run(
        tmp_path / "run",
        trajectory("a", "t1", GOOD),
        trajectory("b", "t1", BAD),
        trajectory("c", "t2", "No answer"),
        trajectory("d", "t3", GOOD, truth="def price(h): return unknown"),
        trajectory("e", "t2", GOOD, outcome="human_error"),
    )
    metrics, rows = evaluate(run)
    assert [(r.id, r.task_id, r.reward, r.passed, r.total, r.outcome) for r in rows] == [
        ("a", "t1", 1.0, 2, 2, "passed"),
        ("b", "t1", 0.5, 1, 2, "failed"),
        ("c", "t2", 0.0, 0, 2, "no_answer"),
        ("d", "t3", None, 0, 2, "invalid"),
        ("e", "t2", 0.0, 0, 2, "no_answer"),
    ]
    assert rows[4].detail["fault"] == "human_error"
    failed = rows[1].detail["tests"]["test2"]
    assert (failed["passed"], failed["expected"]) == (False, "6")
    assert rows[1].detail["why"] == f"got {failed['got']}, expected 6"
    assert metrics["success_rate"] == 0.25
    assert metrics["tests_passed"] == 0.375
    assert metrics["success_rate_ci_low"] <= 0.25 <= metrics["success_rate_ci_high"]
    assert (metrics["faults"], metrics["invalid_tasks"], metrics["tasks"]) == (1, 1, 3)
    assert metrics["scorer"] == "strict"
    attempt = run.manifest().attempts[-1]
    assert attempt.environment["scorer"] == "strict"
    assert attempt.environment["sandbox"] == metrics["sandbox"] in ("bwrap", "landlock")


def test_the_upstream_scorer_is_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", trajectory("a", "t", "import math\n" + GOOD.replace("3", "math.floor(3)")))
    assert evaluate(run)[0]["success_rate"] == 1.0
    metrics, _ = evaluate(run, scorer="upstream")
    assert (metrics["success_rate"], metrics["scorer"]) == (0.0, "upstream")
    assert run.find("scores", needed_by="test").meta["scorer"] == "upstream"


def test_both_scorers_side_by_side(tmp_path: Path) -> None:
    helped = "def rate(): return 3\ndef price(h): return rate() * h"
    run = make_run(tmp_path / "run", trajectory("a", "t1", GOOD), trajectory("b", "t2", helped))
    metrics, rows = evaluate(run, scorer="both")
    assert [(row.reward, row.upstream_reward) for row in rows] == [(1.0, 1.0), (1.0, 0.0)]
    assert (metrics["success_rate"], metrics["upstream_success_rate"]) == (1.0, 0.5)
    assert metrics["upstream_tests_passed_ci_low"] <= 0.5 <= metrics["upstream_tests_passed_ci_high"]
    assert metrics["scorer"] == "both"
    meta = run.find("scores", needed_by="test").meta
    assert (meta["scorer"], meta["tolerance"]) == ("strict", 1e-9)
    figures = evaluate(run, compare=f"{run.path}:scores-1")[0]["compare"]["figures"]
    assert "upstream_tests_passed" not in figures, "only the baseline has them"


def test_a_run_without_a_valid_task_has_no_rate(tmp_path: Path) -> None:
    metrics, _ = evaluate(make_run(tmp_path / "run", trajectory("a", "t", GOOD, truth="def price(h): return x")))
    assert metrics["success_rate"] is metrics["success_rate_ci_low"] is None


def test_comparison_pairs_tasks(tmp_path: Path) -> None:
    theirs = make_run(tmp_path / "theirs", *(trajectory(f"a{i}", f"t{i}", BAD) for i in range(10)))
    ours = make_run(tmp_path / "ours", *(trajectory(f"b{i}", f"t{i}", GOOD if i < 8 else BAD) for i in range(12)))
    with pytest.raises(UsageError, match="none yet"):
        evaluate(ours, compare=str(theirs.path))
    evaluate(theirs)
    metrics, _ = evaluate(ours, compare=str(theirs.path))
    success = metrics["compare"]["figures"]["success_rate"]
    assert metrics["compare"]["tasks"] == 10
    assert (success["wins"], success["losses"], success["ties"]) == (8, 0, 2)
    assert success["difference"] == 0.8
    assert success["p_value"] == pytest.approx(2 / 2**8, abs=1e-6)
    assert metrics["compare"]["figures"]["tests_passed"]["difference"] == 0.4
    assert metrics["win_rate"] == metrics["compare"]["win_rate"] == 0.9
    assert metrics["win_rate_ci_low"] < 0.9 < metrics["win_rate_ci_high"]
    recorded = ours.manifest().attempts[-1].metrics
    assert recorded["compare"] == metrics["compare"]


def test_only_alike_scores_are_compared(tmp_path: Path) -> None:
    theirs = make_run(tmp_path / "theirs", trajectory("a", "t1", GOOD))
    evaluate(theirs, scorer="upstream")
    with pytest.raises(UsageError) as caught:
        evaluate(make_run(tmp_path / "ours", trajectory("a", "t1", GOOD)), compare=str(theirs.path))
    assert "--scorer strict" in str(caught.value.fix)
    evaluate(theirs)
    others = make_run(tmp_path / "others", trajectory("a", "t2", GOOD))
    with pytest.raises(UsageError, match="share no"):
        evaluate(others, compare=str(theirs.path))
    assert others.find("scores", needed_by="test").rows == 1, "what was scored is kept"


def test_different_scorers_are_compared_where_somebody_wants_it(tmp_path: Path) -> None:
    theirs = make_run(tmp_path / "theirs", trajectory("a", "t1", GOOD))
    evaluate(theirs, scorer="upstream")
    ours = make_run(tmp_path / "ours", trajectory("a", "t1", GOOD))
    metrics, _ = evaluate(ours, compare=str(theirs.path), allow_different=True)
    assert metrics["compare"]["warnings"][0]["about"] == "scorer"


def test_a_baseline_that_is_not_alike_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    theirs = make_run(tmp_path / "theirs", trajectory("a", "t1", GOOD))
    evaluate(theirs, scorer="upstream")
    ours = make_run(tmp_path / "ours", trajectory("a", "t1", GOOD))
    with pytest.raises(UsageError):
        evaluate(ours, compare=str(theirs.path))
    assert not ours.manifest().of_kind("scores")


def test_several_dialogues_of_a_task_have_pass_at_k(tmp_path: Path) -> None:
    rows = [trajectory(f"a{i}", f"t{i % 2}", GOOD if i in (0, 2, 1) else BAD) for i in range(6)]
    metrics, _ = evaluate(make_run(tmp_path / "run", *rows))
    told = metrics["pass_at_k"]
    assert list(told) == ["1", "2"]
    assert (told["1"]["tasks"], told["1"]["rate"]) == (2, 0.5)
    assert told["2"]["rate"] == pytest.approx((1 + 2 / 3) / 2, abs=1e-6)
    assert told["2"]["rate_ci_low"] <= told["2"]["rate"] <= told["2"]["rate_ci_high"]
    assert [row["rate"] for row in metrics["pass_hat_k"].values()] == pytest.approx([0.5, (1 / 3) / 2], abs=1e-6)
    assert metrics["best_of_k"]["1"]["rate"] == pytest.approx(metrics["tests_passed"])
    alone, _ = evaluate(make_run(tmp_path / "alone", rows[0], rows[1]))
    assert not {"pass_at_k", "best_of_k"} & alone.keys()


def test_a_run_without_rollouts_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rollouts"):
        evaluate(Run.create(tmp_path / "run", "code"))


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pottery"):
        evaluate(make_run(tmp_path / "run", trajectory("a", "t", GOOD), kind="pottery"))
