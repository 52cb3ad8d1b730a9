"""Differences of two methods, paired by task, over seeds."""

from __future__ import annotations

import math

import pytest

from sweet.study.aggregate import against


def test_a_difference_is_the_mean_over_tasks_of_the_mean_over_seeds() -> None:
    ours = {0: {"a": 1.0, "b": 1.0, "c": 0.0, "d": 1.0}, 1: {"a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0}, 2: {"a": 9.0}}
    theirs = {0: {"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}, 1: {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}}
    found = against(ours, theirs)  # by task 0.5, 0, 0.5, 1; by seed 0.5, 0.5; the third seed is not shared
    assert found is not None
    assert found.difference == 0.5
    assert found.ci is not None
    assert 0 <= found.ci[0] < 0.5 < found.ci[1] <= 1
    assert found.p_value == 0.25, "two of the eight sign patterns of three differences are as extreme"
    assert found.seeds_ci == (0.5, 0.5)


def test_the_interval_over_seeds_is_student_s() -> None:
    ours = {seed: {"a": value} for seed, value in enumerate([0.5, 0.6, 0.7])}
    found = against(ours, {seed: {"a": 0.5} for seed in ours})
    assert found is not None
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert found.seeds_ci == pytest.approx((0.1 - reach, 0.1 + reach), abs=1e-5)


def test_one_seed_has_no_interval_and_no_shared_seed_no_result() -> None:
    alone = against({0: {"a": 1.0, "b": 0.0}}, {0: {"a": 0.0, "b": 0.0}})
    assert alone is not None
    assert alone.seeds_ci is None
    assert alone.ci is not None
    assert against({0: {"a": 1.0}}, {1: {"a": 1.0}}) is None
    assert against({}, {}) is None
