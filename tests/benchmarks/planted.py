"""Targets of `benchmarks.fuzz` with a fault each, which it must find."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import strategies as st

from benchmarks.fuzz_targets import Target

NUMBERS = st.integers(0, 10_000)


def wrong(value: int) -> None:
    assert value < 1_000, "it is large"


def endless(value: int) -> None:
    while value > 1_000:
        pass


def deadly(value: int) -> None:
    if value > 1_000:
        os._exit(3)


def size(_value: Any) -> int:
    return 1


WRONG, ENDLESS, DEADLY = (Target(each.__name__, NUMBERS, each, size) for each in (wrong, endless, deadly))
