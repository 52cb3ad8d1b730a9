"""Prefix trees: token sequences with common prefixes are laid out once and computed in one forward pass.

The sequences, sorted, are laid out in depth-first order: each adds only the ids that differ from the previous one. Slot
q may attend to slot k exactly when k <= q < end(k), where end(k) is the end of k's subtree, and a slot's position
counts along its path, so every sequence sees exactly the ids that it would see alone. The tree is built from ids, so it
is correct for any chat template. Sequences without a common prefix are laid out next to each other: a tree may have
several roots.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tree:
    """The layout of some sequences.

    Attributes:
        ids: the token of each slot.
        positions: the number of slots before it on its path.
        ends: the end of the subtree of each slot (exclusive).
        paths: for each sequence, in the order given, the slots of its ids.
    """

    ids: list[int]
    positions: list[int]
    ends: list[int]
    paths: list[list[int]]


def build_tree(sequences: Sequence[Sequence[int]]) -> Tree:
    """The prefix tree of `sequences`, which must not be empty."""
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    paths: list[list[int]] = [[] for _ in sequences]
    path: list[int] = []
    previous: tuple[int, ...] = ()
    for sequence, index in sorted((tuple(sequence), index) for index, sequence in enumerate(sequences)):
        shared = common(previous, sequence)
        for slot in path[shared:]:
            ends[slot] = len(ids)
        start, depth = len(ids), len(sequence) - shared
        ids.extend(sequence[shared:])
        positions.extend(range(shared, len(sequence)))
        ends.extend([0] * depth)
        path = path[:shared] + list(range(start, start + depth))
        paths[index] = path
        previous = sequence
    for slot in path:
        ends[slot] = len(ids)
    return Tree(ids, positions, ends, paths)


class Forest:
    """Counts the slots of the tree of the sequences added so far, without building it."""

    def __init__(self) -> None:
        self.slots = 0
        self._rows: list[tuple[int, ...]] = []

    def add(self, sequences: Iterable[tuple[int, ...]]) -> None:
        """Add sequences; each needs slots for the ids that it does not share with its nearest neighbours."""
        for row in sequences:
            position = bisect(self._rows, row)
            neighbours = self._rows[max(0, position - 1) : position + 1]
            self.slots += len(row) - max((common(row, other) for other in neighbours), default=0)
            self._rows.insert(position, row)


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """The length of the common prefix of two sequences."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    return next(i for i in range(size) if left[i] != right[i])
