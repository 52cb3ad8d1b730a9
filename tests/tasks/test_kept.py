"""The newest entries, up to a number and up to a sum of sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweet.tasks.code.kept import Kept


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=40))
def test_the_newest_entries_stay_within_both_bounds(sizes: list[tuple[int, int]]) -> None:
    kept: Kept[int, int] = Kept(5, 100)
    for key, (first, later) in enumerate(sizes):
        kept.add(key, key, first)
        kept.grow(key, later)
        left = [number for number in range(len(sizes)) if kept.get(number) is not None]
        assert left == list(range(key + 1))[len(range(key + 1)) - len(left) :], "the oldest are dropped first"
        assert kept.bytes == sum(sum(sizes[number]) for number in left) <= 100
        assert len(kept) == len(left) <= 5
        assert left, "80 bytes have room"


def test_an_entry_that_was_dropped_does_not_grow() -> None:
    kept: Kept[str, int] = Kept(1, 100)
    kept.add("a", 1, 10)
    kept.add("b", 2, 20)
    kept.grow("a", 1000)
    assert kept.get("a") is None
    assert (kept.get("b"), kept.bytes) == (2, 20)
