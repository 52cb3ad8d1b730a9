"""A rendered page as one sees it: its height, its background, and parts, each a text, a coloured box or an image.

A block that the browser tells may be several of these at once (a button is a box and a text); a box in the colour of
what lies under it is none, because nobody can see it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sweet.render.page import Block, RenderSettings, Screenshot

WIDTH = RenderSettings().width
"""Of every page, in CSS px: the browser's window."""
WHITE = "#ffffff"
ALIKE = 10.0
"""Colours that are no further apart look the same (Euclidean distance, 441 from black to white)."""
MOST_PARTS = 400
"""Of a page with more parts the largest are looked at."""
_PAGE_TAGS = ("body", "html")


@dataclass(frozen=True)
class Part:
    """One thing to be seen. Lengths in whole CSS px from the page's left and top edge.

    Attributes:
        text: "" unless it is a text.
        color: of the letters or of the box; "" of an image.
        font_size, bold: of a text, else 0 and False.
    """

    kind: Literal["text", "box", "image"]
    x: int
    y: int
    width: int
    height: int
    color: str = ""
    text: str = ""
    font_size: int = 0
    bold: bool = False

    @property
    def area(self) -> float:
        """What it covers in px²; of a text its letters, about half as wide as high."""
        box = float(max(self.width, 0) * max(self.height, 0))
        return min(box, 0.5 * self.font_size**2 * len(self.text)) if self.kind == "text" else box

    def holds(self, other: Part) -> bool:
        """Whether `other` lies in it, but for a pixel."""
        return (
            self.x - 1 <= other.x
            and self.y - 1 <= other.y
            and other.x + other.width <= self.x + self.width + 1
            and other.y + other.height <= self.y + self.height + 1
        )


@dataclass(frozen=True)
class View:
    """A page. `parts` in no particular order."""

    height: int
    background: str
    parts: tuple[Part, ...]

    def beneath(self, part: Part) -> str:
        """The colour of what lies under a part: of the smallest larger box around it, else of the page."""
        around = [p for p in self.parts if p.kind == "box" and p.area > part.area and p is not part and p.holds(part)]
        return min(around, key=lambda p: (p.area, p.x, p.y, p.color)).color if around else self.background


def view_of(shot: Screenshot) -> View:
    """What is to be seen of a rendered page."""
    background = WHITE
    parts: list[Part] = []
    for block in shot.blocks:
        if block.tag in _PAGE_TAGS and block.background:
            background = block.background
        parts += _parts(block)
    largest = sorted(dict.fromkeys(parts), key=lambda part: -part.area)[:MOST_PARTS]
    whole = View(shot.height, background, tuple(largest))
    seen = tuple(p for p in whole.parts if p.kind != "box" or apart(p.color, whole.beneath(p)) > ALIKE)
    return View(shot.height, background, seen)


def _parts(block: Block) -> list[Part]:
    x, y, width, height = (round(value) for value in (block.x, block.y, block.width, block.height))
    if width < 1 or height < 1:
        return []
    parts: list[Part] = []
    if block.image:
        parts.append(Part("image", x, y, width, height))
    elif block.background and block.tag not in _PAGE_TAGS:
        parts.append(Part("box", x, y, width, height, block.background))
    if block.text:
        size = max(1, round(block.font_size))
        parts.append(Part("text", x, y, width, height, block.color, block.text, size, block.bold))
    return parts


def apart(one: str, other: str) -> float:
    """Euclidean distance of two colours "#rrggbb": 0 to 441."""
    return math.dist(_rgb(one), _rgb(other))


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
