"""Which texts of a page can be seen in its screenshot.

A page can contain texts that nobody sees: in the colour of their background, transparent, covered, or moved away after
they were measured. The screenshot decides: a text is seen if the pixels of its box differ from the box's most common
colour, and by no less than a share of the difference between that colour and the one of the letters. Letters of a
pixel or two are dots, which nobody can read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sweet.render.page import Block, Screenshot
from sweet.render.screenshot_images import read_image
from sweet.tasks.html.view import SAME_COLOR

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
    found = np.ones(len(blocks), dtype=np.bool_)
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
        found[number] = _flat(counts, [int(block.color[i : i + 2], 16) for i in (1, 3, 5)])
    return found


def _flat(counts: NDArray[np.int_], letters: Sequence[int]) -> bool:
    """Return whether pixels with these histograms of red, green and blue show no letters of this colour."""
    common = [int(channel.argmax()) for channel in counts]
    ranges = [np.flatnonzero(channel) for channel in counts]
    contrast = math.hypot(*(max(c - int(r[0]), int(r[-1]) - c) for c, r in zip(common, ranges, strict=True)))
    return contrast <= max(SAME_COLOR, FAINTEST * math.dist(common, letters))
