"""Differences of two methods, paired by task, over seeds; and studies of other seeds that are added."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from sweet.errors import UsageError
from sweet.study.outcomes import against, combined, method_results
from sweet.study.results import Reached, SeedOutcome, StudyResults


def seed(success: str, *, seconds: float = 1.0, curve: list[Reached] | None = None) -> SeedOutcome:
    return SeedOutcome(
        success=success, tests_passed=0.5, greedy_success=0.25, generated_tokens=10, seconds=seconds, curve=curve
    )


def test_a_difference_is_the_mean_over_tasks_of_the_mean_over_seeds() -> None:
    ours = {0: seed("1101"), 1: seed("1011"), 2: seed("1111")}
    theirs = {0: seed("0100"), 1: seed("1000")}
    found = against(ours, theirs)  # by task 0.5, 0, 0.5, 1; by seed 0.5, 0.5; the third seed is not shared
    assert found is not None
    assert found.difference.mean == 0.5
    assert found.difference.ci is not None
    assert 0 <= found.difference.ci[0] < 0.5 < found.difference.ci[1] <= 1
    assert found.p_value == 0.25, "two of the eight sign patterns of three differences are as extreme"
    assert found.seeds_ci == (0.5, 0.5)


def test_the_interval_over_seeds_is_student_s() -> None:
    found = against(
        {number: seed("1" * ones + "0" * (10 - ones)) for number, ones in enumerate((5, 6, 7))},
        {number: seed("0" * 10) for number in range(3)},
    )
    assert found is not None
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert found.seeds_ci == pytest.approx((0.6 - reach, 0.6 + reach), abs=1e-5)


def test_one_seed_has_no_interval_and_no_shared_seed_no_result() -> None:
    alone = against({0: seed("10")}, {0: seed("00")})
    assert alone is not None
    assert alone.seeds_ci is None
    assert alone.difference.ci is not None
    assert against({0: seed("1")}, {1: seed("1")}) is None
    assert against({}, {}) is None


def study(outcomes: Mapping[str, Mapping[int, SeedOutcome]], **changes: object) -> StudyResults:
    methods = method_results(outcomes, {name: {"learns": name} for name in outcomes})
    seeds = sorted({number for by_seed in outcomes.values() for number in by_seed})
    return StudyResults(
        **{"schema_version": 1, "family": "micro", "seeds": seeds, "test_tasks": 4, "methods": methods, **changes}
    )


def test_seeds_of_another_study_give_what_one_study_of_all_seeds_gives() -> None:
    points = [[Reached(0, 0.0, 0.1), Reached(10, seconds, 0.4)] for seconds in (3.0, 5.0)]
    first = {"sweet": {0: seed("1110", curve=points[0])}, "rft": {0: seed("1000")}}
    second = {"sweet": {1: seed("1111", curve=points[1])}, "rft": {1: seed("0000", seconds=7.0)}}
    both = {name: first[name] | second[name] for name in first}
    found = combined(study(first), study(second))
    assert found == study(both)
    assert found.seeds == [0, 1]
    (sweet, rft) = found.methods
    assert sweet.success_by_seed == [0.75, 1.0]
    assert rft.against_sweet is not None
    assert (rft.seconds, rft.against_sweet.difference.mean) == (4.0, 0.75)
    assert [point.seconds for point in sweet.curve] == [0.0, 4.0]
    assert combined(found, StudyResults.model_validate_json(study({"grpo": first["rft"]}).model_dump_json())).methods[
        -1
    ].success_by_seed == [0.25], "a further method of one of the seeds"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "micro-long"}, "the same family"),
        ({"settings": {"samples": 4}}, "the same settings"),
        ({"test_tasks": 5}, "the same test tasks"),
    ],
)
def test_studies_that_differ_in_more_than_seeds_are_not_added(changes: dict[str, object], message: str) -> None:
    first = {"sweet": {0: seed("1110")}}
    with pytest.raises(UsageError, match=message):
        combined(study(first), study({"sweet": {1: seed("1110")}}, **changes))
