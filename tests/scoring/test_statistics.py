"""Rates and comparisons: bounds, symmetry, known values, coverage."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.scoring.results.statistics import (
    binomial_deviation,
    compare,
    expected_last,
    mcnemar_p_value,
    mean_difference,
    powers_of_two,
    sign_flip_p_value,
    student_t,
    t_interval,
)
from sweet.stages.intervals import clustered_mean, wilson

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
    one, other = compare(ours, theirs), compare(theirs, ours)
    assert one.difference.mean == pytest.approx(-other.difference.mean)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.wins, one.losses, one.ties) == (other.losses, other.wins, other.ties)
    assert one.win_rate.mean == pytest.approx(1 - other.win_rate.mean)
    assert one.win_rate.mean == pytest.approx((one.wins + one.ties / 2) / len(pairs))
    assert 0 <= one.win_rate.low <= one.win_rate.mean <= one.win_rate.high <= 1
    assert one.wins + one.losses + one.ties == len(pairs)
    assert 0 < one.p_value <= 1
    assert one.difference.low <= one.difference.mean <= one.difference.high


def test_only_shared_tasks_are_paired() -> None:
    found = compare({"a": 1.0, "b": 0.0}, {"b": 1.0, "c": 1.0})
    assert (found.wins, found.losses, found.ties) == (0, 1, 0)
    with pytest.raises(ValueError, match="share no task"):
        compare({"a": 1.0}, {"b": 1.0})


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemars_p_value_is_both_tails_of_the_fair_binomial(wins: int, losses: int) -> None:
    n = wins + losses
    chances = [math.comb(n, k) / 2**n for k in range(n + 1)]
    as_extreme = sum(chance for k, chance in enumerate(chances) if abs(2 * k - n) >= abs(wins - losses))
    assert mcnemar_p_value(wins, losses) == pytest.approx(as_extreme)


def test_mcnemars_p_value_of_very_many_tasks() -> None:
    assert mcnemar_p_value(3000, 3000) == 1.0
    assert 0 < mcnemar_p_value(2900, 3100) < 0.05


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=14))
def test_on_0_and_1_the_permutation_test_is_mcnemars(differences: list[float]) -> None:
    wins, losses = differences.count(1.0), differences.count(-1.0)
    assert sign_flip_p_value(differences) == pytest.approx(mcnemar_p_value(wins, losses))


@given(st.lists(st.sampled_from([-0.5, -0.3, -0.1, 0.0, 0.1, 0.2, 0.5]), min_size=1, max_size=8))
def test_the_permutation_test_tries_every_sign(differences: list[float]) -> None:
    sums = [
        abs(math.fsum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = sum(total >= abs(math.fsum(differences)) - 1e-9 for total in sums) / len(sums)
    assert sign_flip_p_value(differences) == pytest.approx(expected)


@pytest.mark.parametrize("single", [True, False])
def test_mcnemar_judges_one_dialogue_a_task_of_0_or_1(single: bool) -> None:
    ours = {str(i): float(i < 9) for i in range(30)}
    theirs = {str(i): float(i == 9) for i in range(30)}
    result = compare(ours, theirs, single=single)
    assert result.test == ("mcnemar" if single else "permutation")
    assert result.p_value == pytest.approx(2 * (1 + 10) / 2**10)
    assert compare({**ours, "0": 0.5}, theirs, single=single).test == "permutation"


def test_many_pairs_are_judged_by_random_signs() -> None:
    assert sign_flip_p_value([1.0] * 30) == pytest.approx(1 / 10_001)
    assert sign_flip_p_value([1.0, -1.0] * 20) > 0.8
    assert sign_flip_p_value([0.0] * 5) == 1.0
    exact = mcnemar_p_value(25, 12)
    assert sign_flip_p_value([1.0] * 25 + [-1.0] * 12) == pytest.approx(exact, abs=0.01)


def test_chance_alone_is_called_significant_as_rarely_as_it_should() -> None:
    rng = random.Random(3)
    found = []
    for seed in range(200):
        differences = [rng.choice((-0.4, -0.1, 0.1, 0.4)) for _ in range(20)]
        found.append(sign_flip_p_value(differences, seed=seed) <= 0.05)
    assert sum(found) <= 22


def test_a_difference_without_spread_still_has_an_interval() -> None:
    none = mean_difference([0.0] * 10)
    assert [none.mean, none.low, none.high] == pytest.approx([0.0, -0.2775, 0.2775], abs=1e-3)
    every = mean_difference([1.0] * 10)
    assert (every.mean, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(wilson(1.0, 10)[0])
    mirrored = mean_difference([-1.0] * 10)
    assert [mirrored.low, mirrored.high] == pytest.approx([-1.0, -every.low])
    wide = mean_difference([0.0] * 10, span=2.0)
    assert wide.high == pytest.approx(2 * none.high)


def test_the_interval_of_a_difference_covers() -> None:
    rng = random.Random(2)
    hits = 0
    for seed in range(100):
        differences = [float(rng.random() < 0.5) - float(rng.random() < 0.4) for _ in range(80)]
        found = mean_difference(differences, resamples=400, seed=seed)
        hits += found.low <= 0.1 <= found.high
    assert hits >= 87


def test_the_order_of_the_rows_is_of_no_account() -> None:
    rng = random.Random(0)
    rows = [(float(rng.random() < 0.4), f"t{rng.randrange(20)}") for _ in range(60)]
    told = clustered_mean([value for value, _ in rows], [task for _, task in rows])
    rng.shuffle(rows)
    assert clustered_mean([value for value, _ in rows], [task for _, task in rows]) == told


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.integers(1, 7))
def test_the_best_of_k_is_over_every_choice(values: list[float], k: int) -> None:
    if k > len(values):
        return
    chosen = [values[max(places)] for places in itertools.combinations(range(len(values)), k)]
    assert expected_last(k, values) == pytest.approx(sum(chosen) / len(chosen), abs=1e-9)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=9), st.integers(1, 9))
def test_pass_at_k_and_pass_hat_k_are_the_unbiased_estimators(solved: list[float], k: int) -> None:
    n, c = len(solved), int(sum(solved))
    if k > n:
        return
    told = expected_last(k, sorted(solved))
    assert told == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k))
    choices = [any(choice) for choice in itertools.combinations(solved, k)]
    assert told == pytest.approx(sum(choices) / len(choices))
    every = expected_last(k, sorted(solved, reverse=True))
    assert every == pytest.approx(math.comb(c, k) / math.comb(n, k))
    assert every == pytest.approx(sum(map(all, itertools.combinations(solved, k))) / len(choices))


def test_thousands_of_dialogues_of_a_task_are_no_matter() -> None:
    assert expected_last(1024, [0.0] * 2047 + [1.0]) == pytest.approx(0.5)


def test_sizes_are_powers_of_two_that_there_are() -> None:
    assert [powers_of_two(most) for most in (1, 2, 3, 4, 9)] == [[1], [1, 2], [1, 2], [1, 2, 4], [1, 2, 4, 8]]


def test_the_binomial_spread() -> None:
    rng = random.Random(5)
    rates = [sum(rng.random() < 0.3 for _ in range(50)) / 50 for _ in range(2000)]
    mean = sum(rates) / len(rates)
    deviation = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / len(rates))
    assert binomial_deviation(0.3, 50) == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (9, 2.262157), (30, 2.042272)]
)
def test_student_s_t_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(t, abs=1e-6)
    assert student_t(0.5, freedom) < t < student_t(0.99, freedom)


def test_an_interval_over_a_few_seeds() -> None:
    found = t_interval([0.1, 0.2, 0.3])
    assert found is not None
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.2 - reach, 0.2 + reach), abs=1e-6)
    bounded = t_interval([0.1, 0.2, 0.3], bounds=(0.0, 1.0))
    assert bounded is not None
    assert (bounded.low, bounded.high) == pytest.approx((0.0, 0.2 + reach), abs=1e-6)
    assert t_interval([0.1]) is None
    assert t_interval([]) is None
