"""Counts the work of a forward pass: the computed positions, compared with the input tokens.

Sequences with common prefixes are laid out as a prefix tree if that saves positions and a tree is possible, otherwise
as rows padded to the longest. This rule is used by the scorer and by the estimate in the dry run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweet.learn.tokens import TokenSequence


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
