"""Rates and comparisons: bounds, symmetry, known values, coverage."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.stages.statistics import clustered_mean, compare, sign_flip_p_value, wilson

SHARES = st.floats(0, 1).map(lambda x: round(x, 3))
PAIRS = st.dictionaries(st.text(max_size=3), st.tuples(SHARES, SHARES), min_size=1, max_size=12)


@given(st.lists(st.tuples(SHARES, st.sampled_from("abcdef")), min_size=1, max_size=30))
def test_an_interval_holds_its_mean_and_stays_in_bounds(rows: list[tuple[float, str]]) -> None:
    values, clusters = [value for value, _ in rows], [cluster for _, cluster in rows]
    rate = clustered_mean(values, clusters, resamples=200)
    assert rate.mean == pytest.approx(sum(values) / len(values))
    assert -1e-12 <= rate.low <= rate.mean <= rate.high <= 1 + 1e-12
    assert clustered_mean(values, clusters, resamples=200) == rate


def test_no_values_have_no_rate() -> None:
    assert math.isnan(clustered_mean([], []).mean)


def test_repeating_dialogues_of_a_task_tells_nothing_new() -> None:
    values = [float(i % 3 == 0) for i in range(60)]
    tasks = [f"t{i}" for i in range(60)]
    once = clustered_mean(values, tasks)
    many = clustered_mean(values * 8, tasks * 8)
    assert (many.high - many.low) == pytest.approx(once.high - once.low, rel=0.1)


def test_all_or_nothing_still_has_an_interval() -> None:
    rate = clustered_mean([0.0] * 8, [f"t{i}" for i in range(8)])
    assert (rate.low, rate.mean) == (0.0, 0.0)
    assert rate.high == pytest.approx(0.3244, abs=1e-3)


def test_bounds_may_be_others_than_0_and_1() -> None:
    same = clustered_mean([-0.2] * 8, [f"t{i}" for i in range(8)], bounds=(-1.0, 1.0))
    assert same.mean == pytest.approx(-0.2)
    assert -1 < same.low < same.mean < same.high < 1
    assert [same.low, same.high] == pytest.approx([2 * bound - 1 for bound in wilson(0.4, 8)])
    mixed = clustered_mean([-0.5, 0.5, 0.9], ["a", "b", "c"], bounds=(-1.0, 1.0))
    assert -0.5 <= mixed.low <= mixed.mean <= mixed.high <= 0.9


def test_wilson_known_value() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_the_interval_covers() -> None:
    rng = random.Random(1)
    hits = 0
    for seed in range(100):
        values = [float(rng.random() < 0.3) for _ in range(80)]
        rate = clustered_mean(values, [str(i) for i in range(80)], resamples=400, seed=seed)
        hits += rate.low <= 0.3 <= rate.high
    assert hits >= 86


@given(PAIRS)
def test_comparing_the_other_way_round_mirrors(pairs: dict[str, tuple[float, float]]) -> None:
    ours = {task: pair[0] for task, pair in pairs.items()}
    theirs = {task: pair[1] for task, pair in pairs.items()}
    one, other = compare(ours, theirs, resamples=200), compare(theirs, ours, resamples=200)
    assert one.difference.mean == pytest.approx(-other.difference.mean)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.wins, one.losses, one.ties) == (other.losses, other.wins, other.ties)
    assert one.win_rate.mean == pytest.approx(1 - other.win_rate.mean)
    assert one.win_rate.mean == pytest.approx((one.wins + one.ties / 2) / len(pairs))
    assert 0 <= one.win_rate.low <= one.win_rate.mean <= one.win_rate.high <= 1
    assert one.tasks == len(pairs)
    assert 0 < one.p_value <= 1
    assert one.difference.low <= one.difference.mean <= one.difference.high


def test_only_shared_tasks_are_paired() -> None:
    assert compare({"a": 1.0, "b": 0.0}, {"b": 1.0, "c": 1.0}).tasks == 1
    with pytest.raises(ValueError, match="share no task"):
        compare({"a": 1.0}, {"b": 1.0})


def test_binary_pairs_give_mcnemars_exact_p_value() -> None:
    differences = [1.0] * 9 + [-1.0] + [0.0] * 20
    exact = 2 * (1 + 10) / 2**10  # binomial tail of 9 or more of 10, both sides
    assert sign_flip_p_value(differences) == pytest.approx(exact)


def test_many_pairs_are_judged_by_random_signs() -> None:
    assert sign_flip_p_value([1.0] * 30) == pytest.approx(1 / 10_001)
    assert sign_flip_p_value([1.0, -1.0] * 20) > 0.8
    assert sign_flip_p_value([0.0] * 5) == 1.0
