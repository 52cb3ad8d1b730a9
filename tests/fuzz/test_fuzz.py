"""Hypothesis looks for inputs that break the readers of hostile texts, values and files.

Each target (tests/fuzz/targets.py) has a strategy of inputs, a property, and bounds of time. FUZZ_EXAMPLES sets how
many examples each gets, FUZZ_SEED the seed; by default they are always the same ones.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.targets import TARGETS, CostlyError, bounded

EXAMPLES, SEED = int(os.environ.get("FUZZ_EXAMPLES", "40")), int(os.environ.get("FUZZ_SEED", "0"))
FUZZ = settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.timeout(300 + EXAMPLES)
@pytest.mark.parametrize("name", TARGETS)
def test_the_property_of_each_target_holds(name: str) -> None:
    target = TARGETS[name]

    @seed(SEED)
    @FUZZ
    @given(target.inputs)
    def holds(value: object) -> None:
        with bounded(target.size(value)):
            target.check(value)

    holds()


def test_an_example_that_costs_too_much_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.9, 0.0, 2.2, 0.0, 2.2, 0.0, 0.0])
    monkeypatch.setattr("tests.fuzz.targets.time.process_time", lambda: next(clock))
    with bounded(10):
        pass
    with pytest.raises(CostlyError, match=r"2\.2 s of CPU time for 10 bytes"), bounded(10):
        pass
    with bounded(100_000):
        pass
    with pytest.raises(CostlyError, match="500 MiB for 10 bytes"), bounded(10, lambda: 500.0):
        pass
