"""The token sequences of a training, to which its examples refer by index.

A trajectory that occurs in many preferences is encoded once, and its reference log-probabilities are computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from sweet.learn.tokens import TokenSequence


@dataclass
class Pool:
    """Token sequences by key, each stored once.

    Attributes:
        sequences: the sequences in order of insertion.
        dropped: number of early turns that were dropped to fit the maximum length.
    """

    sequences: list[TokenSequence] = field(default_factory=list)
    dropped: int = 0
    _known: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)

    def find(self, key: Hashable) -> tuple[int, ...] | None:
        """The indices of the sequences stored under `key`; None if there are none."""
        return self._known.get(key)

    def put(self, key: Hashable, sequences: Iterable[TokenSequence], dropped: int = 0) -> tuple[int, ...]:
        """Store sequences under `key` and return their indices."""
        start = len(self.sequences)
        self.sequences.extend(sequences)
        self._known[key] = tuple(range(start, len(self.sequences)))
        self.dropped += dropped
        return self._known[key]
