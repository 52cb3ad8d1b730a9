"""The newest entries, up to a number and up to a sum of sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweet.tasks.code.expected import BoundedCache


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=40))
def test_the_newest_entries_stay_within_both_bounds(sizes: list[tuple[int, int]]) -> None:
    cache: BoundedCache[int, int] = BoundedCache(5, 100)
    for key, (first, later) in enumerate(sizes):
        cache.add(key, key, first)
        cache.grow(key, later)
        left = [number for number in range(len(sizes)) if cache.get(number) is not None]
        assert left == list(range(key + 1))[len(range(key + 1)) - len(left) :], "the oldest are dropped first"
        assert cache.bytes == sum(sum(sizes[number]) for number in left) <= 100
        assert len(cache) == len(left) <= 5
        assert left, "80 bytes have room"


def test_an_entry_that_was_dropped_does_not_grow() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1, 100)
    cache.add("a", 1, 10)
    cache.add("b", 2, 20)
    cache.grow("a", 1000)
    assert cache.get("a") is None
    assert (cache.get("b"), cache.bytes) == (2, 20)
