"""Quantities in the unit that suits them."""

from __future__ import annotations

import pytest

from sweet.units import (
    count,
    format_bytes,
    format_duration,
    format_metric,
    format_rate,
    metric_name,
    rate,
    rate_bounds,
    rate_value,
)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_600, "1.0 MB"),
        (436_000_000, "436 MB"),
        (1.25e9, "1.2 GB"),
        (3e13, "30,000 GB"),
    ],
)
def test_bytes_in_the_unit_that_suits_them(count: float, shown: str) -> None:
    assert format_bytes(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0004, "0 s"),
        (0.256, "0.26 s"),
        (4.06, "4.1 s"),
        (12.3, "12 s"),
        (59.4, "59 s"),
        (59.6, "1.0 min"),
        (210, "3.5 min"),
        (3569, "59.5 min"),
        (3571, "1.0 h"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("per_second", "shown"), [(1234.56, "1,234.6/s"), (0.26, "0.3/s"), (0.04, "2.4/min"), (0.001, "3.6/h")]
)
def test_a_rate_is_by_second_minute_or_hour(per_second: float, shown: str) -> None:
    assert format_rate(per_second) == shown


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [
        (1, "dialogue", "1 dialogue"),
        (0, "dialogue", "0 dialogues"),
        (1200, "retry", "1,200 retries"),
        (2, "key", "2 keys"),
        (3, "loss", "3 losses"),
        (2, "task with pairs", "2 tasks with pairs"),
    ],
)
def test_a_number_of_things_has_their_noun(number: int, noun: str, shown: str) -> None:
    assert count(number, noun) == shown


def test_a_share_is_in_per_cent_and_a_difference_in_percentage_points() -> None:
    assert rate(0.064449, 0.0451, 0.0862) == "6.4 % [4.5, 8.6]"
    assert rate(0.064449) == "6.4 %"
    assert rate(-0.0166, -0.0833, 0.0334, signed=True) == "-1.7 pp [-8.3, +3.3]"
    assert rate(-0.0001, signed=True) == "+0.0 pp", "zero has no minus"


def test_a_mean_beyond_1_is_no_share_and_neither_is_what_is_shown_with_it() -> None:
    assert rate(5.25, 4.9, 5.5) == "5.250 [4.900, 5.500]"
    assert rate(0.5, 0.2, 1.5) == "0.500 [0.200, 1.500]"
    assert rate_value(0.5, 3.0) == "0.500"
    assert rate_bounds(0.5, 0.2, 0.8, 3.0) == "[0.200, 0.800]"


def test_a_metric_has_its_unit_and_its_interval() -> None:
    metrics = {"success_rate": 0.25, "success_rate_ci_low": 0.2, "success_rate_ci_high": 0.3}
    assert format_metric("success_rate", 0.25, metrics) == "25.0 % [20.0, 30.0]"
    assert format_metric("success_rate", 0.25) == "25.0 %"
    assert format_metric("answered", 3) == "3", "a number of dialogues"
    assert format_metric("seconds", 75.0) == "1.2 min"
    assert format_metric("loss", 0.69314) == "0.6931"
    assert format_metric("success_rate", None) == "–"
    assert metric_name("episodes") == metric_name("trajectories") == "dialogues"
    assert metric_name("tasks_with_pairs") == "tasks with pairs"
