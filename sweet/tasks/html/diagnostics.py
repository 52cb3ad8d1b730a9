"""Four metrics of the texts of a page and its reference, which explain the cosine of their screenshots.

They follow Design2Code (C. Si et al., 2024, section 3.2): the text blocks of both pages are paired so that the sum of
their text similarities is maximal, pairs that are too dissimilar are dropped, and the remaining pairs are compared.
Unlike there, the blocks are boxes reported by the browser, not detected in an image, and texts are compared by pairs of
neighbouring letters, since single letters hardly distinguish sentences. A text that cannot be seen in the page's
screenshot is not paired with one that can be seen in the reference's (see `sweet.tasks.html.visible`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from sweet.render.page import Block, Screenshot
from sweet.tasks.html.assignment import assign
from sweet.tasks.html.colours import difference
from sweet.tasks.html.visible import unseen

MIN_SIMILARITY = 0.5
"""The least text similarity of a pair."""

MOST_BLOCKS = 300
"""Maximum number of blocks of a page; the largest are used."""

_MOST_LETTERS = 1000
"""Maximum number of letters of a block's text that are compared."""


@dataclass(frozen=True)
class Diagnostics:
    """Each metric is in [0, 1], and 1 for the same page.

    Attributes:
        block_match: the area of the paired blocks of both pages, divided by that of all their blocks.
        text: mean over the pairs of 2 |p ∩ q| / (|p| + |q|) (Sørensen, Dice), p and q the multisets of the pairs of
            neighbouring letters of both texts, their ends included.
        position: mean over the pairs of 1 - max(|x_p - x_q|, |y_p - y_q|), the blocks' centres by width and height of
            their own page.
        color: mean over the pairs of 1 - min(1, CIEDE2000 of the texts' colours / 100).
    """

    block_match: float
    text: float
    position: float
    color: float

    def rounded(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in asdict(self).items()}


NOTHING = Diagnostics(0.0, 0.0, 0.0, 0.0)
"""The metrics of a missing page."""


def diagnose(page: Screenshot | None, reference: Screenshot) -> Diagnostics | None:
    """Return the metrics of a page (None: a missing page), or None if the reference has no text."""
    wanted = _texts(reference)
    if not wanted:
        return None
    shown = [] if page is None else _texts(page)
    if page is None or not shown:
        return NOTHING
    similarity = similarities([block.text for block in wanted], [block.text for block in shown])
    hidden = unseen(page, shown)
    if hidden.any():
        similarity[np.ix_(~unseen(reference, wanted), hidden)] = 0.0
    pairs = [(i, j) for i, j in assign(similarity) if similarity[i, j] >= MIN_SIMILARITY]
    if not pairs:
        return NOTHING
    paired = sum(_area(wanted[i]) + _area(shown[j]) for i, j in pairs)
    everything = sum(map(_area, wanted)) + sum(map(_area, shown))
    return Diagnostics(
        block_match=paired / everything,
        text=_mean([float(similarity[i, j]) for i, j in pairs]),
        position=_mean([_closeness(wanted[i], reference, shown[j], page) for i, j in pairs]),
        color=_mean([1 - min(1.0, difference(wanted[i].color, shown[j].color) / 100) for i, j in pairs]),
    )


def similarities(ours: Sequence[str], theirs: Sequence[str]) -> NDArray[np.float64]:
    """Return the similarities of texts, [ours, theirs], each 0 to 1 (see `Diagnostics.text`)."""
    counts = [Counter(_pairs(text)) for text in (*ours, *theirs)]
    in_both = set().union(*counts[: len(ours)]) & set().union(*counts[len(ours) :])
    column = {pair: number for number, pair in enumerate(sorted(in_both))}
    table = np.zeros((len(counts), len(column)), dtype=np.int16)
    for row, count in enumerate(counts):
        for pair in count.keys() & column.keys():
            table[row, column[pair]] = count[pair]
    other = table[len(ours) :]
    sizes = np.array([count.total() for count in counts], dtype=np.float64)
    found = np.empty((len(ours), len(theirs)))
    for row in range(len(ours)):
        common = np.minimum(table[row], other).sum(axis=1)
        found[row] = 2 * common / (sizes[row] + sizes[len(ours) :])
    return found


def _pairs(text: str) -> list[str]:
    """Return the pairs of neighbouring letters, with a line end at both ends: a text of one letter has two pairs."""
    closed = f"\n{text.casefold()[:_MOST_LETTERS]}\n"
    return [closed[i : i + 2] for i in range(len(closed) - 1)]


def _texts(shot: Screenshot) -> list[Block]:
    """Return the blocks with text and an area, in the order of the page; if there are too many, the largest."""
    blocks = [block for block in shot.blocks if block.text.strip() and _area(block) > 0]
    if len(blocks) > MOST_BLOCKS:
        least = sorted(map(_area, blocks), reverse=True)[MOST_BLOCKS - 1]
        blocks = [block for block in blocks if _area(block) >= least][:MOST_BLOCKS]
    return blocks


def _area(block: Block) -> float:
    return max(block.width, 0.0) * max(block.height, 0.0)


def _closeness(wanted: Block, reference: Screenshot, shown: Block, page: Screenshot) -> float:
    across = _centre(wanted.x, wanted.width, reference.width) - _centre(shown.x, shown.width, page.width)
    down = _centre(wanted.y, wanted.height, reference.height) - _centre(shown.y, shown.height, page.height)
    return 1 - max(abs(across), abs(down))


def _centre(start: float, size: float, whole: int) -> float:
    return min(max((start + size / 2) / whole, 0.0), 1.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
