"""The targets of tests/fuzz: for each, the inputs and the property that holds for all of them.

Inputs are JSON values, which a failing test prints. A property raises AssertionError, or any exception
that the module does not declare. The bounds of time and memory are the same for all, and are checked around it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.files import JSONL, MANIFEST, check_jsonl, check_manifest, manifest_bytes
from tests.fuzz.texts import EXTRACTION, PIECES, check_extraction, check_markers, text_of
from tests.fuzz.values import COMPARISON, check_comparison

CPU_SECONDS, CPU_SECONDS_PER_MB = 2.0, 20.0
"""Bounds of the CPU time of one example: 4 s for 100 KB. What is quadratic takes minutes for that."""
MEMORY_MIB, MEMORY_PER_BYTE = 128.0, 2_000
"""Bounds of the memory of one example: beyond what the process had, 128 MiB and 2,000 times the input."""


@dataclass(frozen=True)
class Target:
    """One target.

    Attributes:
        inputs: the strategy of its inputs, which are JSON values.
        check: raises if the property does not hold for an input.
        size: returns the bytes of the work that an input asks for.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    size: Callable[[Any], int]


class CostlyError(AssertionError):
    """An example needed more time or memory than its size allows."""


@contextmanager
def bounded(size: int, peak: Callable[[], float] | None = None) -> Iterator[None]:
    """Measure the work inside, and raise unless its cost is in the bounds.

    Args:
        size: bytes of the input.
        peak: returns MiB by which the memory of this process has grown since the work began; None measures no memory.

    Raises:
        CostlyError: it needed more.
    """
    used = time.process_time()
    yield
    used = time.process_time() - used
    allowed = CPU_SECONDS + CPU_SECONDS_PER_MB * size / 1e6
    if used > allowed:
        raise CostlyError(f"{used:.1f} s of CPU time for {size} bytes, more than {allowed:.1f} s")
    grown = 0.0 if peak is None else peak()
    most = MEMORY_MIB + MEMORY_PER_BYTE * size / 2**20
    if grown > most:
        raise CostlyError(f"{grown:.0f} MiB for {size} bytes, more than {most:.0f} MiB")


def _length(value: Any) -> int:
    return len(json.dumps(value))


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("extraction", EXTRACTION, check_extraction, lambda value: len(text_of(value["text"]))),
        Target("comparison", COMPARISON, check_comparison, lambda value: 100 * value.get("copies", 1) + _length(value)),
        Target("markers", PIECES, check_markers, lambda value: len(text_of(value))),
        Target(
            "jsonl",
            JSONL,
            check_jsonl,
            lambda value: _length(value) + sum(len(text_of(value[key])) for key in ("bytes", "tail") if key in value),
        ),
        Target("manifest", MANIFEST, check_manifest, lambda value: len(manifest_bytes(value))),
    )
}
