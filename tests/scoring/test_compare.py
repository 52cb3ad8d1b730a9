"""The report of a comparison on made-up evaluations: figures, flips, pass@k, repeats."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.rollouts.dialogue import Assignment, sample_of
from sweet.runs.run import Run
from sweet.scoring.results.compare import CompareConfig, measure_comparison, run_compare
from sweet.scoring.results.evaluation import Evaluation, Values
from sweet.scoring.results.pass_at_k import compare_samples, measure_samples
from sweet.scoring.results.repeats import measure_repeats
from sweet.tasks.scores import RewardRule, Score
from tests.scoring.evaluations import Rewards, evaluate, make_task
from tests.stages.painted import plug_in

CODE, PAGES = RewardRule(solved=1.0), RewardRule(solved=None)
SMALL = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=5)


def one_each(solved: str) -> dict[str, list[float]]:
    """t0, t1, … with one dialogue each: 1 solved, 0 not, h half of the tests."""
    return {f"t{i}": [{"1": 1.0, "0": 0.0, "h": 0.5}[mark]] for i, mark in enumerate(solved)}


def values_of(rewards: Rewards) -> Values:
    found = Values({})
    for task, row in rewards.items():
        for sample, reward in enumerate(row):
            told = {"id": f"{task}-{sample}", "task_id": task, "reward": reward, "passed": 0, "total": 0}
            found.add(Score.model_validate({**told, "outcome": "failed"}))
    return found


def test_the_figures_of_one_dialogue_a_task(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", one_each("111000000h"))
    b = evaluate(tmp_path / "b", one_each("0111111110"))
    metrics = measure_comparison(a, b).as_json()
    success = metrics["figures"]["success_rate"]
    assert (success["a"], success["b"], success["difference"]) == (0.3, 0.8, 0.5)
    assert (success["wins"], success["losses"], success["ties"]) == (6, 1, 3)
    assert success["test"] == "mcnemar"
    assert success["p_value"] == pytest.approx(2 * (1 + 7) / 2**7)
    for name in ("a", "b", "difference", "win_rate"):
        assert success[f"{name}_ci_low"] <= success[name] <= success[f"{name}_ci_high"]
    assert metrics["figures"]["tests_passed"]["test"] == "permutation"
    assert metrics["figures"]["tests_passed"] == metrics["figures"]["reward"]
    assert metrics["win_rate"] == metrics["figures"]["reward"]["win_rate"] == (6 + 0.5 * 2) / 10
    assert "upstream_success_rate" not in metrics["figures"]
    assert not {"pass_at_k", "best_of_k"} & metrics.keys()


def test_the_difference_is_b_minus_a_over_the_shared_tasks(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", {"t1": [1.0, 0.0], "t2": [1.0], "only": [1.0]})
    b = evaluate(tmp_path / "b", {"t2": [0.0], "t1": [1.0, 1.0, 1.0, 0.0]})
    metrics = measure_comparison(a, b).as_json()
    success = metrics["figures"]["success_rate"]
    assert metrics["tasks"] == success["tasks"] == 2
    assert (success["a"], success["b"]) == (0.75, 0.375)
    assert success["difference"] == pytest.approx(success["b"] - success["a"])
    assert success["test"] == "permutation"
    mirrored = measure_comparison(b, a).as_json()["figures"]["success_rate"]
    assert mirrored["difference"] == -success["difference"]
    assert mirrored["p_value"] == success["p_value"]


def test_it_is_the_same_every_time_and_in_any_order_of_rows(tmp_path: Path) -> None:
    rewards = {f"t{i}": [float((i * k) % 3 == 0) for k in range(3)] for i in range(12)}
    a, b = evaluate(tmp_path / "a", rewards), evaluate(tmp_path / "b", one_each("101010101010"))
    first = measure_comparison(a, b).as_json()
    assert measure_comparison(a, b).as_json() == first
    file = a.run.file(a.scores)
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    again = measure_comparison(a, b).as_json()
    assert {**again, "warnings": []} == {**first, "warnings": []}


def test_flips_go_both_ways_and_lead_to_dialogues(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", {"t1": [1.0, 1.0, 0.0], "t2": [0.0, 0.5, 0.2], "t3": [1.0] * 3, "t4": [1.0, 0.0]})
    b = evaluate(tmp_path / "b", {"t1": [0.0, 1.0, 0.2], "t2": [1.0, 1.0, 0.0], "t3": [0.0] * 3, "t4": [0.0, 1.0]})
    flips = measure_comparison(a, b).as_json()["flips"]
    assert [row["task"] for row in flips["lost"]["tasks"]] == ["t3", "t1"], (
        "the greatest change first; t4 is no majority"
    )
    lost = flips["lost"]["tasks"][1]
    assert (lost["a"], lost["b"]) == (pytest.approx(2 / 3, abs=1e-6), pytest.approx(1 / 3, abs=1e-6))
    assert lost["a_ids"] == ["t1-s0-r0", "t1-s1-r0", "t1-s2-r0"], "solved ones first"
    assert lost["b_ids"] == ["t1-s0-r0", "t1-s2-r0", "t1-s1-r0"], "the worst first"
    (gained,) = flips["gained"]["tasks"]
    assert (gained["task"], gained["a_ids"][0], gained["b_ids"][0]) == ("t2", "t2-s0-r0", "t2-s0-r0")
    assert flips["by"] == "solved"


def test_flips_are_limited_and_the_rest_is_counted(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", one_each("1" * 12)), evaluate(tmp_path / "b", one_each("0" * 12))
    lost = measure_comparison(a, b, flips=5).as_json()["flips"]["lost"]
    assert (lost["count"], len(lost["tasks"])) == (12, 5)
    assert measure_comparison(a, b, flips=0).as_json()["flips"]["lost"] == {"count": 12, "tasks": []}
    assert len(measure_comparison(a, b).as_json()["flips"]["lost"]["tasks"]) == 10


def test_where_rewards_are_degrees_the_largest_changes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(monkeypatch)
    a = evaluate(tmp_path / "a", {"t1": [0.5], "t2": [0.9], "t3": [-0.2], "t4": [0.4]}, kind="painted")
    b = evaluate(tmp_path / "b", {"t1": [0.6], "t2": [0.1], "t3": [0.7], "t4": [0.4]}, kind="painted")
    metrics = measure_comparison(a, b).as_json()
    assert metrics["flips"]["by"] == "reward"
    assert [row["task"] for row in metrics["flips"]["gained"]["tasks"]] == ["t3", "t1"]
    assert [row["task"] for row in metrics["flips"]["lost"]["tasks"]] == ["t2"]
    assert list(metrics["figures"]) == ["reward", "cosine"]
    assert metrics["figures"]["cosine"]["test"] == "permutation"


@pytest.mark.parametrize("step", [0, 1])
def test_the_rounding_of_means_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    plug_in(monkeypatch)
    once = {f"t{tenths}": [tenths / 10] for tenths in range(10)}
    thrice = {task: [round(row[0] + step / 10, 1)] * 3 for task, row in once.items()}
    assert step or any(fmean(thrice[task]) != fmean(once[task]) for task in once)
    a, b = (evaluate(tmp_path / name, one, kind="painted") for name, one in (("a", once), ("b", thrice)))
    for there, back, sign in ((a, b, 1), (b, a, -1)):
        found = measure_comparison(there, back).as_json()
        figure, flips = found["figures"]["reward"], found["flips"]
        assert sorted((figure["wins"], figure["losses"])) == [0, 10 * step]
        assert (figure["ties"], figure["difference"]) == (10 - 10 * step, sign * step / 10)
        assert sorted((flips["lost"]["count"], flips["gained"]["count"])) == [0, 10 * step]
        assert figure["difference_ci_low"] < figure["difference"] < figure["difference_ci_high"]
        assert step or (figure["win_rate"], figure["p_value"]) == (0.5, 1.0)


@given(st.dictionaries(st.sampled_from("abcdef"), SMALL, min_size=1))
def test_pass_at_1_is_the_mean_over_tasks_and_more_tries_are_no_worse(rewards: dict[str, list[float]]) -> None:
    found = measure_samples(values_of(rewards), CODE).as_json()
    if max(map(len, rewards.values())) == 1:
        assert found == {}
        return
    first = found["pass_at_k"]["1"]
    assert first["tasks"] == len(rewards)
    assert first["rate"] == pytest.approx(fmean(row.count(1.0) / len(row) for row in rewards.values()), abs=1e-6)
    for k, told in found["pass_at_k"].items():
        deep = [row for row in rewards.values() if len(row) >= int(k)]
        expected = [1 - math.comb(len(row) - row.count(1.0), int(k)) / math.comb(len(row), int(k)) for row in deep]
        assert told["rate"] == pytest.approx(fmean(expected), abs=1e-6)
        assert told["rate_ci_low"] <= told["rate"] <= told["rate_ci_high"]
    assert set(found["best_of_k"]) == set(found["pass_at_k"]) == set(found["pass_hat_k"])
    assert not {"pass_at_k", "pass_hat_k"} & measure_samples(values_of(rewards), PAGES).as_json().keys()


def test_both_sides_at_k_over_the_tasks_that_have_as_many() -> None:
    a = values_of({"t1": [1.0, 0.0, 0.0, 0.0], "t2": [0.0, 0.5], "t3": [1.0]})
    b = values_of({"t1": [1.0, 1.0, 0.0, 0.0], "t2": [0.0, 1.0, 0.0, 0.0], "t3": [1.0] * 4})
    found = compare_samples(a, b, CODE, ["t1", "t2", "t3"]).as_json()
    assert {k: told["tasks"] for k, told in found["pass_at_k"].items()} == {"1": 3, "2": 2, "4": 1}
    two = found["pass_at_k"]["2"]
    assert (two["a"], two["b"]) == (0.25, pytest.approx((5 / 6 + 1 / 2) / 2, abs=1e-6))
    assert two["difference"] == pytest.approx(two["b"] - two["a"], abs=1e-6)
    both = found["pass_hat_k"]["2"]
    assert (both["tasks"], both["a"], both["b"]) == (2, 0.0, pytest.approx((1 / 6) / 2, abs=1e-6))
    assert two["difference_ci_low"] <= two["difference"] <= two["difference_ci_high"]
    assert found["best_of_k"]["2"]["a"] == pytest.approx((0.5 + 0.5) / 2)
    assert compare_samples(a, values_of({"t1": [1.0]}), CODE, ["t1"]).as_json() == {}


@given(st.text(min_size=1, max_size=6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_dialogues_name_tells_its_sample(task: str, sample: int, seed: int) -> None:
    assert sample_of(Assignment(make_task(task), sample, seed).id, task) == sample
    assert sample_of(task, task) is None


def repeats(evaluation: Evaluation, *runs: Run) -> dict[str, Any]:
    return measure_repeats(evaluation, evaluation.values(), runs).as_json()


def test_repeats_by_their_sample(tmp_path: Path) -> None:
    rewards = {"t1": [1.0, 0.0, 1.0], "t2": [1.0, 0.0, 0.0], "t3": [0.0, 0.0, 1.0], "t4": [1.0, 1.0, 1.0]}
    found = repeats(evaluate(tmp_path / "run", rewards))
    rates = [0.75, 0.25, 0.75]
    assert [rate["rate"] for rate in found["rates"]] == rates
    assert [(rate["sample"], rate["seed"]) for rate in found["rates"]] == [(0, 0), (1, 0), (2, 0)]
    assert found["mean"] == pytest.approx(fmean(rates), abs=1e-6)
    assert found["deviation"] == pytest.approx(stdev(rates), abs=1e-6)
    assert found["binomial_deviation"] == pytest.approx(math.sqrt(fmean(rates) * (1 - fmean(rates)) / 4), abs=1e-6)
    assert (found["figure"], found["repeats"], found["tasks"], found["left_out"]) == ("success_rate", 3, 4, 0)


def test_one_repeat_has_no_spread(tmp_path: Path) -> None:
    found = repeats(evaluate(tmp_path / "run", one_each("110")))
    assert (found["repeats"], found["deviation"]) == (1, None)


def test_other_seeds_are_repeats_where_nothing_else_differs(tmp_path: Path) -> None:
    one = evaluate(tmp_path / "run", one_each("1100"))
    evaluate(tmp_path / "run", one_each("0000"), seed=1)
    evaluate(tmp_path / "run", one_each("1111"), seed=1)  # played again: the newest of a seed counts
    evaluate(tmp_path / "run", one_each("1111"), seed=2, temperature=0.5)
    evaluate(tmp_path / "run", one_each("1111"), seed=3, agent="other")
    evaluate(tmp_path / "run", one_each("1111"), seed=4, scores_meta={"tolerance": 0.1})
    evaluate(tmp_path / "run", one_each("1111"))  # the same seed is no other repeat
    elsewhere = evaluate(tmp_path / "more", one_each("1000"), seed=5, concurrency=3).run
    found = repeats(one)
    assert [(rate["seed"], rate["rate"]) for rate in found["rates"]] == [(0, 0.5), (1, 1.0)]
    found = repeats(one, elsewhere)
    assert [(rate["seed"], rate["rate"]) for rate in found["rates"]] == [(0, 0.5), (1, 1.0), (5, 0.25)]
    assert found["rates"][2]["scores"] == f"{elsewhere.path}:scores-1"


def test_a_repeat_that_lacks_many_tasks_is_left_out(tmp_path: Path) -> None:
    rewards = {f"t{i}": [1.0, 0.0, *([1.0] if i < 3 else [])] for i in range(20)}
    found = repeats(evaluate(tmp_path / "run", rewards))
    assert (found["repeats"], found["left_out"], found["tasks"]) == (2, 1, 20)


def test_dialogues_named_elsewhere_count_in_their_order(tmp_path: Path) -> None:
    found = evaluate(tmp_path / "run", {"t1": [1.0, 0.0], "t2": [1.0, 1.0]})
    file = found.run.file(found.scores)
    file.write_text(file.read_text().replace("t1-s0-r0", "x").replace("t1-s1-r0", "y"))
    assert [(rate["sample"], rate["rate"]) for rate in repeats(found)["rates"]] == [(0, 1.0), (1, 0.5)]


def test_degrees_have_no_binomial_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch)
    found = repeats(evaluate(tmp_path / "run", {"t1": [0.5, 0.7], "t2": [0.9, 0.8]}, kind="painted"))
    assert found["figure"] == "cosine"
    assert found["binomial_deviation"] is None
    assert found["deviation"] == pytest.approx(stdev([0.7, 0.75]), abs=1e-6)


def test_the_repeats_of_named_runs_are_told(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", one_each("1100")), evaluate(tmp_path / "b", one_each("1110"), agent="other")
    more = evaluate(tmp_path / "more", one_each("1010"), seed=1)
    metrics = run_compare(a.name, b.name, CompareConfig(repeat_run=[more.run.path])).metrics.as_json()
    assert (metrics["repeats"]["a"]["repeats"], metrics["repeats"]["b"]["repeats"]) == (2, 1)


def test_a_named_run_without_a_repeat_is_refused(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", one_each("1100")), evaluate(tmp_path / "b", one_each("1110"), agent="other")
    more = evaluate(tmp_path / "more", one_each("1010"), seed=1, temperature=0.5)
    with pytest.raises(UsageError, match="differs only in the seed") as error:
        run_compare(a.name, b.name, CompareConfig(repeat_run=[more.run.path]))
    assert error.value.where == f"--repeat-run {more.run.path}"


def test_two_evaluations_in_one_run(tmp_path: Path) -> None:
    before = evaluate(tmp_path / "run", one_each("1000"))
    after = evaluate(tmp_path / "run", one_each("1110"), agent="trained")
    result = run_compare(f"{before.run.path}:rollouts-1", after.run.path, CompareConfig())
    assert (result.stage, result.run, result.artifacts) == ("compare", after.run.path, [])
    assert (result.metrics.a.scores, result.metrics.b.scores) == (
        "scores-1",
        "scores-2",
    )
    assert (result.metrics.a.agent, result.metrics.b.agent) == (
        "micro",
        "trained",
    )
    assert result.metrics.figures["success_rate"].difference.value == 0.5


def test_the_same_thing_twice_is_refused_and_says_what_there_is(tmp_path: Path) -> None:
    evaluate(tmp_path / "run", one_each("1000"))
    evaluate(tmp_path / "run", {"other": [1.0]})
    run = evaluate(tmp_path / "run", one_each("1110"), agent="trained").run.path
    link = tmp_path / "link"
    link.symlink_to(run)
    for a, b in ((run, run), (f"{run}:scores-3", f"{link}:rollouts-3")):
        with pytest.raises(UsageError, match="Both sides are scores-3") as caught:
            run_compare(a, b, CompareConfig())
        assert "scores-1 (of rollouts-1: micro, micro, test), scores-2 (of rollouts-2: micro" in caught.value.what
        assert caught.value.fix == f"sweet compare {run}:scores-1 {run}:scores-3"
    with pytest.raises(UsageError) as caught:
        run_compare(f"{run}:scores-1", f"{run}:scores-1", CompareConfig())
    assert caught.value.fix == f"sweet compare {run}:scores-1 {run}:scores-3"
    alone = evaluate(tmp_path / "alone", one_each("1")).run.path
    with pytest.raises(UsageError) as caught:
        run_compare(alone, alone, CompareConfig())
    assert "name another run" in str(caught.value.fix)
    evaluate(tmp_path / "alone", {"other": [1.0]})
    with pytest.raises(UsageError, match="Both sides are scores-1") as caught:
        run_compare(f"{alone}:scores-1", f"{alone}:scores-1", CompareConfig())
    assert "name another run" in str(caught.value.fix), "the scores of other tasks are no other side"


def test_no_shared_task_is_refused(tmp_path: Path) -> None:
    a = evaluate(tmp_path / "a", {"t1": [1.0], "t2": [None]})
    b = evaluate(tmp_path / "b", {"t2": [1.0], "t3": [1.0]})
    with pytest.raises(UsageError, match="share no valid task") as caught:
        measure_comparison(a, b).as_json()
    assert caught.value.fix == (
        f"{a.run.path} has scores-1 (of rollouts-1: micro, micro, test); "
        f"{b.run.path} has scores-1 (of rollouts-1: micro, micro, test)"
    )


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_written(tmp_path: Path) -> None:
    a, b = evaluate(tmp_path / "a", one_each("10")), evaluate(tmp_path / "b", one_each("01"))
    before = state(tmp_path)
    result = run_compare(a.run.path, b.run.path, CompareConfig())
    assert state(tmp_path) == before
    json.dumps(result.as_json(), allow_nan=False)
