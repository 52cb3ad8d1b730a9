"""Token sequences with supervised spans: what a training computes with, without what encodes it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

WHOLE = -1
"""The `turn` of a span that covers a whole sequence (protocol `upstream`, see `sweet.learn.objectives`)."""


@dataclass(frozen=True, slots=True)
class Span:
    """The supervised ids `[start, stop)` of a sequence, and the turn they belong to.

    Attributes:
        reach: the end of the turn for a regression head, if it is after `stop`: after the result of the reply.
        split: where the reply starts after the thought, if each of them is half of the turn (`weights`).
    """

    start: int
    stop: int
    turn: int
    reach: int | None = None
    split: int | None = None

    @property
    def end(self) -> int:
        return self.stop if self.reach is None else self.reach

    @property
    def weights(self) -> list[float]:
        """The weight of each id, which add up to the number of ids.

        With them the weighted sum over the ids, divided by their number, is the mean of the thought's mean and the
        reply's mean; so whatever is computed of sums and numbers of ids needs not know of the parts.
        """
        size = self.stop - self.start
        if self.split is None:
            return [1.0] * size
        thought, reply = self.split - self.start, self.stop - self.split
        return [size / (2 * thought)] * thought + [size / (2 * reply)] * reply

    def moved(self, offset: int) -> Span:
        reach, split = (None if place is None else place + offset for place in (self.reach, self.split))
        return Span(self.start + offset, self.stop + offset, self.turn, reach, split)


class VisionModel(NamedTuple):
    """The model whose image processor prepares an image, and the limit on its size (`VisionProcessor`)."""

    name: str
    max_pixels: int | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """An image in a sequence: its PNG file, the number of its tokens, and what prepares it."""

    path: Path
    tokens: int
    vision: VisionModel


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Token ids with supervised spans, in order, and the images whose tokens are among them."""

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    images: tuple[Picture, ...] = ()

    @property
    def supervised(self) -> int:
        """The number of supervised ids."""
        return sum(span.stop - span.start for span in self.spans)

    def with_whole(self) -> TokenSequence:
        """The same sequence with an additional span over every id but the first, which nothing predicts."""
        return replace(self, spans=(*self.spans, Span(1, len(self.ids), WHOLE)))

    def after(self, prefix: tuple[int, ...]) -> TokenSequence:
        """The same sequence with ids before it."""
        if not prefix:
            return self
        return replace(self, ids=prefix + self.ids, spans=tuple(span.moved(len(prefix)) for span in self.spans))


@dataclass
class Pool:
    """The token sequences of a training by key, each stored once; its examples refer to them by index.

    A trajectory that occurs in many preferences is encoded once, and its reference log-probabilities are computed once.

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
