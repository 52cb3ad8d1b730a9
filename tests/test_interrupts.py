"""`tests.interrupts` counts the lines of a call, and of nothing that Python does beside it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from tests.interrupts import interrupts, lines


@pytest.fixture
def collections() -> Iterator[list[bool]]:
    """Whether lines were counted, at each collection of garbage. There is one after every few objects, and it calls a
    function with lines of its own, as Hypothesis has one."""
    counted: list[bool] = []

    def called(phase: str, info: dict[str, int]) -> None:
        counted.append(sys.gettrace() is not None)

    before = gc.get_threshold()
    gc.callbacks.append(called)
    gc.set_threshold(3)
    yield counted
    gc.set_threshold(*before)
    gc.callbacks.remove(called)


def work() -> list[list[int]]:
    kept = []
    for number in range(20):
        one = [number]
        kept.append(one)
    return kept


def test_collections_of_garbage_are_no_part_of_the_call(collections: list[bool]) -> None:
    work()
    assert collections
    assert interrupts(work) == lines(work) > 20
    assert not any(collections)
