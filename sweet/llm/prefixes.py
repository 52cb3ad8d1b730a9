"""A cache of the keys and values of finished sequences, for prompts that share a prefix with one of them.

In a dialogue every prompt is the previous one with a reply and an answer appended, and all dialogues start with the
same system prompt, so most of a prompt has been computed before. Sequences are looked up by the hashes of their
prefixes of 16, 32, 48 … tokens, each chained to the previous one; matches are compared token by token. The least
recently used sequences are evicted when the memory limit is reached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

BLOCK = 16
"""Granularity of prefixes in tokens: a shorter common prefix is not worth copying."""


@dataclass(frozen=True)
class CachedSequence:
    """A sequence's ids and its row of the cache (`SlotCache.read_row`)."""

    ids: tuple[int, ...]
    tensors: list[torch.Tensor]

    @property
    def size(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors)


class PrefixStore:
    """Holds at most `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._entries: OrderedDict[int, CachedSequence] = OrderedDict()
        self._prefix_hashes: dict[int, int] = {}
        self._next = 0

    def find(self, ids: Sequence[int]) -> tuple[CachedSequence, int] | None:
        """The sequence with the longest common prefix found, and the number of common ids."""
        found = None
        for prefix_hash in _prefix_hashes(ids):
            entry = self._prefix_hashes.get(prefix_hash)
            if entry is None:
                break
            found = entry
        if found is None:
            return None
        saved = self._entries[found]
        common = _common_length(saved.ids, ids)
        if common < BLOCK:
            return None
        self._entries.move_to_end(found)
        return saved, common

    def covers(self, ids: Sequence[int]) -> bool:
        """Whether all but the last, incomplete block of `ids` is stored."""
        found = self.find(ids)
        return found is not None and len(ids) - found[1] < BLOCK

    def add(self, ids: Sequence[int], tensors: list[torch.Tensor]) -> None:
        """Store a sequence, evicting the least recently used ones."""
        saved = CachedSequence(tuple(ids), tensors)
        if saved.size > self.capacity or len(ids) < BLOCK:
            return
        while self.used + saved.size > self.capacity:
            self._drop()
        number, self._next = self._next, self._next + 1
        self._entries[number] = saved
        self.used += saved.size
        # Prefixes point to the newest sequence: the next turn of a dialogue starts with all of it.
        self._prefix_hashes.update(dict.fromkeys(_prefix_hashes(saved.ids), number))

    def _drop(self) -> None:
        number, saved = self._entries.popitem(last=False)
        self.used -= saved.size
        for prefix_hash in _prefix_hashes(saved.ids):
            if self._prefix_hashes.get(prefix_hash) == number:
                del self._prefix_hashes[prefix_hash]

    def clear(self) -> None:
        self._entries.clear()
        self._prefix_hashes.clear()
        self.used = 0


def _prefix_hashes(ids: Sequence[int]) -> Iterator[int]:
    prefix_hash = 0
    for stop in range(BLOCK, len(ids) + 1, BLOCK):
        prefix_hash = hash((prefix_hash, *ids[stop - BLOCK : stop]))
        yield prefix_hash


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """The number of leading ids that two sequences share."""
    low, high = 0, min(len(left), len(right))
    if tuple(left[:high]) == tuple(right[:high]):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if tuple(left[low:middle]) == tuple(right[low:middle]):
            low = middle
        else:
            high = middle
    return low
