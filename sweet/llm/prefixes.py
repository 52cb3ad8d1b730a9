"""Keys and values of finished sequences, kept so that a prompt that begins like one of them need not be computed again.

In a dialogue every prompt is the last one with a reply and an answer behind it, and all dialogues begin with the same
system prompt, so most of a prompt has been computed before. Sequences are found by the hashes of their heads of 16, 32,
48 … tokens, each hash chained to the one before; what is found is compared token by token. The least recently used
sequences go when the memory allowed is used up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

BLOCK = 16
"""Tokens by which heads are found: a shorter common head is not worth copying."""


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
        """The sequence with the longest common head found, and how many leading ids are common."""
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
        """Whether all but the last, incomplete block of `ids` is held."""
        found = self.find(ids)
        return found is not None and len(ids) - found[1] < BLOCK

    def add(self, ids: Sequence[int], tensors: list[torch.Tensor]) -> None:
        """Keep a sequence; the oldest ones make room."""
        saved = CachedSequence(tuple(ids), tensors)
        if saved.size > self.capacity or len(ids) < BLOCK:
            return
        while self.used + saved.size > self.capacity:
            self._drop()
        number, self._next = self._next, self._next + 1
        self._entries[number] = saved
        self.used += saved.size
        # The newest sequence stands for its heads: the next turn of a dialogue begins with the whole of it.
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
    """How many leading ids two sequences share."""
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
