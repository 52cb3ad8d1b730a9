"""Learning curves over seeds, and what a method had reached when `sweet` was done."""

from __future__ import annotations

import math

import pytest

from sweet.study.outcomes import at_equal_seconds, mean_curve
from sweet.study.results import Reached

START = Reached(0, 0.0, 0.1)


def test_a_curve_has_the_first_points_that_all_seeds_have_and_its_end_with_intervals_over_seeds() -> None:
    first = [START, Reached(100, 10.0, 0.2), Reached(200, 20.0, 0.4), Reached(300, 30.0, 0.5)]
    second = [Reached(0, 0.0, 0.3), Reached(140, 14.0, 0.4), Reached(260, 22.0, 0.4)]
    start, early, late = mean_curve({0: first, 1: second})
    assert (start.tokens, start.seconds) == (0, 0)
    assert start.success.mean == pytest.approx(0.2)
    assert (early.tokens, early.seconds) == (120, 12)
    assert early.success.mean == pytest.approx(0.3)
    assert (late.tokens, late.seconds) == (280, 26), "the ends, though one seed has a point more"
    assert late.success.mean == pytest.approx(0.45)
    assert late.success.ci == pytest.approx((0.0, 1.0))
    assert early.success.ci == (0.0, 1.0), "two seeds 20 points apart: 12.7 standard errors of 10 points"


def test_tokens_that_a_server_does_not_report_are_not_guessed() -> None:
    (point,) = mean_curve({0: [Reached(None, 1.0, 0.5)], 1: [Reached(10, 1.0, 0.5)]})
    assert point.tokens is None
    assert mean_curve({}) == []


def test_every_method_is_read_at_the_seconds_of_sweet_on_the_same_seed() -> None:
    sweet = {seed: [START, Reached(50, 40.0, 0.3), Reached(100, 80.0 + seed, 0.5 + seed / 10)] for seed in range(3)}
    online = [START, Reached(20, 30.0, 0.2), Reached(60, 80.5, 0.4), Reached(100, 200.0, 0.9)]
    found = at_equal_seconds({0: online, 1: online, 2: online, 7: online}, sweet)
    assert found is not None
    assert found.seconds == 81
    assert found.tokens == pytest.approx((20 + 60 + 60) / 3, abs=0.1)
    assert found.success.mean == pytest.approx((0.2 + 0.4 + 0.4) / 3, abs=1e-6)
    assert found.sweet_minus.mean == pytest.approx((0.3 + 0.2 + 0.3) / 3, abs=1e-6)
    reach = 4.302653 * (0.1 / math.sqrt(3)) / math.sqrt(3)
    assert found.sweet_minus.ci == pytest.approx((0.8 / 3 - reach, 0.8 / 3 + reach), abs=1e-5)


def test_a_method_that_learns_too_slowly_is_where_it_started() -> None:
    found = at_equal_seconds({0: [START, Reached(10, 99.0, 0.9)]}, {0: [START, Reached(10, 50.0, 0.6)]})
    assert found is not None
    assert (found.success.mean, found.tokens, found.sweet_minus.mean) == (0.1, 0, 0.5)
    assert found.sweet_minus.ci is None, "one seed has no interval"
    assert at_equal_seconds({0: [START]}, {1: [START]}) is None
    assert at_equal_seconds({}, {}) is None
