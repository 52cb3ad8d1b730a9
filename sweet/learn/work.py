"""How much a forward computes: the positions it lays out, against the tokens it is given.

Sequences that begin alike are laid out as a prefix tree where that saves something and they may stand in one, else as
rows padded to the longest. The one rule is here, for the scorer that computes and for whoever counts beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweet.learn.tokens import TokenSequence


@dataclass(frozen=True)
class Work:
    """Positions that were computed: those of tokens, and padding beside them."""

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
    """The longest sequence that may stand in a tree with all of these: 0 where one of them has pictures."""
    return 0 if any(sequence.images for sequence in sequences) else max_shared_length


def uses_tree(lengths: Sequence[int], slots: int, max_shared_length: int) -> bool:
    """Whether sequences of these lengths are computed as their tree of `slots`; `shares_up_to` as of a scorer."""
    longest = max(lengths)
    return longest <= max_shared_length and slots < len(lengths) * longest


def computed_work(lengths: Sequence[int], slots: int, max_shared_length: int) -> Work:
    """What one forward over sequences of these lengths computes; arguments as of `stands_in_tree`."""
    if uses_tree(lengths, slots, max_shared_length):
        return Work(slots)
    return Work(sum(lengths), len(lengths) * max(lengths) - sum(lengths))
