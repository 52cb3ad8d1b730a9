"""Four metrics of the texts of a page and its reference, which explain the cosine of their screenshots.

They follow Design2Code (C. Si et al., 2024, section 3.2): the text blocks of both pages are paired, the most similar
texts first, down to a least similarity, and the pairs are compared. Unlike there, the blocks are boxes reported by the
browser, not detected in an image, texts are compared by pairs of neighbouring letters, since single letters hardly
distinguish sentences, and colours as `sweet.tasks.html.compare` does. A text that cannot be seen in the page's
screenshot is not paired with one that can be seen in the reference's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from sweet.render.page import Block, Screenshot
from sweet.render.screenshot_images import read_image
from sweet.tasks.html.view import FARTHEST, SAME_COLOR, color_distance, greedy
from sweet.tasks.scores import Metric, Score, reward

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
        color: mean over the pairs of 1 - the distance of the texts' colours over that of black and white.
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
    reference_blocks = _texts(reference)
    if not reference_blocks:
        return None
    page_blocks = [] if page is None else _texts(page)
    if page is None or not page_blocks:
        return NOTHING
    similarity = similarities([block.text for block in reference_blocks], [block.text for block in page_blocks])
    hidden = unseen(page, page_blocks)
    if hidden.any():
        similarity[np.ix_(~unseen(reference, reference_blocks), hidden)] = 0.0
    pairs = greedy([(-float(similarity[i, j]), int(i), int(j)) for i, j in np.argwhere(similarity >= MIN_SIMILARITY)])
    if not pairs:
        return NOTHING
    paired = sum(_area(reference_blocks[i]) + _area(page_blocks[j]) for i, j in pairs)
    everything = sum(map(_area, reference_blocks)) + sum(map(_area, page_blocks))
    return Diagnostics(
        block_match=paired / everything,
        text=_mean([float(similarity[i, j]) for i, j in pairs]),
        position=_mean([_closeness(reference_blocks[i], reference, page_blocks[j], page) for i, j in pairs]),
        color=_mean([1 - color_distance(reference_blocks[i].color, page_blocks[j].color) / FARTHEST for i, j in pairs]),
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
    matrix = np.empty((len(ours), len(theirs)))
    for row in range(len(ours)):
        common = np.minimum(table[row], other).sum(axis=1)
        matrix[row] = 2 * common / (sizes[row] + sizes[len(ours) :])
    return matrix


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


def _closeness(target: Block, reference: Screenshot, block: Block, page: Screenshot) -> float:
    across = _centre(target.x, target.width, reference.width) - _centre(block.x, block.width, page.width)
    down = _centre(target.y, target.height, reference.height) - _centre(block.y, block.height, page.height)
    return 1 - max(abs(across), abs(down))


def _centre(start: float, size: float, whole: int) -> float:
    return min(max((start + size / 2) / whole, 0.0), 1.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _diagnostic(name: str) -> Callable[[Score], float | None]:
    def value(score: Score) -> float | None:
        diagnostics: dict[str, float] = score.detail.get("diagnostics", {})
        return diagnostics.get(name)

    return value


METRICS = {
    "cosine": Metric(reward, low=-1.0),
    **{name: Metric(_diagnostic(name)) for name in Diagnostics.__dataclass_fields__},
}

FAINTEST = 0.2
"""The least contrast of a text's pixels, as a share of that of its colour. Placeholders of fields have 0.36."""

SMALLEST = 3.0
"""The least size of a font, and height of a text's box, in CSS px, of a text that can be seen."""

MOST_LOOKED_AT = 8
"""Maximum of the areas of all boxes together, in areas of the screenshot. Boxes of texts hardly overlap in ordinary
pages, and so have less than one."""


def unseen(shot: Screenshot, blocks: Sequence[Block]) -> NDArray[np.bool_]:
    """Return for each of these text blocks of a page whether it cannot be seen.

    Texts after those whose boxes together reach `MOST_LOOKED_AT` screenshots count as unseen.

    Raises:
        SweetError: the screenshot cannot be read.
    """
    image = read_image(shot.png)
    left = MOST_LOOKED_AT * image.width * image.height
    mask = np.ones(len(blocks), dtype=np.bool_)
    for number, block in enumerate(blocks):
        x, width = (block.text_x, block.text_width) if block.text_width > 0 else (block.x, block.width)
        box = (
            max(0, math.floor(x)),
            max(0, math.floor(block.y)),
            min(image.width, math.ceil(x + width)),
            min(image.height, math.ceil(block.y + block.height)),
        )
        area = (box[2] - box[0]) * (box[3] - box[1])
        if min(block.font_size, block.height) < SMALLEST:
            continue
        if box[0] >= box[2] or box[1] >= box[3] or area > left:
            continue
        left -= area
        counts = np.array(image.crop(box).histogram()).reshape(3, 256)
        mask[number] = _flat(counts, [int(block.color[i : i + 2], 16) for i in (1, 3, 5)])
    return mask


def _flat(counts: NDArray[np.int_], letters: Sequence[int]) -> bool:
    """Return whether pixels with these histograms of red, green and blue show no letters of this colour."""
    common = [int(channel.argmax()) for channel in counts]
    ranges = [np.flatnonzero(channel) for channel in counts]
    contrast = math.hypot(*(max(c - int(r[0]), int(r[-1]) - c) for c, r in zip(common, ranges, strict=True)))
    return contrast <= max(SAME_COLOR, FAINTEST * math.dist(common, letters))
