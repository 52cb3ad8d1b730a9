"""Prefix trees: token sequences with common prefixes are laid out once and computed in one forward pass.

The sequences, sorted, are laid out in depth-first order: each adds only the ids that differ from the previous one. Slot
q may attend to slot k exactly when k <= q < end(k), where end(k) is the end of k's subtree, and a slot's position
counts along its path, so every sequence sees exactly the ids that it would see alone. The tree is built from ids, so it
is correct for any chat template. Sequences without a common prefix are laid out next to each other: a tree may have
several roots.

`Work` counts the positions that a forward pass computes, of tokens and of padding: a tree is laid out if that saves
positions and a tree is possible, otherwise the sequences are rows padded to the longest. The scorer and the estimate of
the dry run follow this rule.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweet.learn.sequences import TokenSequence
from sweet.tasks.trajectory import common_length


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
        shared = common_length(previous, sequence)
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
            self.slots += len(row) - max((common_length(row, other) for other in neighbours), default=0)
            self._rows.insert(position, row)


@dataclass(frozen=True)
class Work:
    """Computed positions: those of tokens, and padding."""

    tokens: int = 0
    padding: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.tokens + other.tokens, self.padding + other.padding)

    def __sub__(self, other: Work) -> Work:
        return Work(self.tokens - other.tokens, self.padding - other.padding)

    @property
    def positions(self) -> int:
        return self.tokens + self.padding


def longest_shared(sequences: Sequence[TokenSequence], max_shared_length: int) -> int:
    """The maximum length of a sequence in a tree with all of these: 0 if one of them has images."""
    return 0 if any(sequence.images for sequence in sequences) else max_shared_length


def uses_tree(lengths: Sequence[int], slots: int, max_shared_length: int) -> bool:
    """Whether sequences of these lengths are computed as a tree of `slots`, given a scorer's `max_shared_length`."""
    longest = max(lengths)
    return longest <= max_shared_length and slots < len(lengths) * longest


def computed_work(lengths: Sequence[int], slots: int, max_shared_length: int) -> Work:
    """The work of one forward pass over sequences of these lengths; arguments as for `uses_tree`."""
    if uses_tree(lengths, slots, max_shared_length):
        return Work(slots)
    return Work(sum(lengths), len(lengths) * max(lengths) - sum(lengths))
