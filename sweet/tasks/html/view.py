"""The visible content of a rendered page: its height, its background, and parts: texts, coloured boxes and images.

A block reported by the browser may be several parts (a button is a box and a text). A box in the colour of what is
under it is not a part, because it cannot be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sweet.render.page import Block, RenderSettings, Screenshot

WIDTH = RenderSettings().width
"""Width in CSS px of the browser's window, and so of every page, unless `--window` says otherwise."""
WHITE = "#ffffff"
FARTHEST = 441.7
"""The Euclidean distance of black and white."""
SAME_COLOR = 10.0
"""Colours within this distance look the same."""
MOST_PARTS = 400
"""Maximum number of parts of a page; the largest are used."""
_PAGE_TAGS = ("body", "html")


@dataclass(frozen=True)
class Part:
    """A visible part of a page. Lengths are whole CSS px from the page's left and top edges.

    Attributes:
        text: the text of a text part, else "".
        color: the colour of the letters or of the box; "" for an image.
        font_size, bold: the font of a text part, else 0 and False.
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
        """The area in px²; for a text that of its letters, about half as wide as high."""
        box = float(max(self.width, 0) * max(self.height, 0))
        return min(box, 0.5 * self.font_size**2 * len(self.text)) if self.kind == "text" else box

    def contains(self, other: Part) -> bool:
        """Return whether `other` is inside this part, within a pixel."""
        return (
            self.x - 1 <= other.x
            and self.y - 1 <= other.y
            and other.x + other.width <= self.x + self.width + 1
            and other.y + other.height <= self.y + self.height + 1
        )


@dataclass(frozen=True)
class View:
    """The visible content of a page; `parts` are in no particular order, `width` is the window's."""

    height: int
    background: str
    parts: tuple[Part, ...]
    width: int = WIDTH

    def color_under(self, part: Part) -> str:
        """Return the colour under a part: that of the smallest larger box around it, else of the page."""
        around = [
            p for p in self.parts if p.kind == "box" and p.area > part.area and p is not part and p.contains(part)
        ]
        return min(around, key=lambda p: (p.area, p.x, p.y, p.color)).color if around else self.background


def view_of(shot: Screenshot) -> View:
    """Return the visible content of a rendered page."""
    background = WHITE
    parts: list[Part] = []
    for block in shot.blocks:
        if block.tag in _PAGE_TAGS and block.background:
            background = block.background
        parts += _parts(block)
    largest = sorted(dict.fromkeys(parts), key=lambda part: -part.area)[:MOST_PARTS]
    whole = View(shot.height, background, tuple(largest), shot.width)
    seen = tuple(
        p for p in whole.parts if p.kind != "box" or color_distance(p.color, whole.color_under(p)) > SAME_COLOR
    )
    return View(shot.height, background, seen, shot.width)


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


def color_distance(color: str, other: str) -> float:
    """Return the Euclidean distance of two colours "#rrggbb": 0 to 441."""
    return math.dist(_rgb(color), _rgb(other))


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def greedy(candidates: Iterable[tuple[float, int, int]]) -> list[tuple[int, int]]:
    """Return pairs of (cost, left, right), the cheapest first, in which each left and each right is at most once."""
    taken_left, taken_right = set[int](), set[int]()
    pairs: list[tuple[int, int]] = []
    for _, i, j in sorted(candidates):
        if i not in taken_left and j not in taken_right:
            taken_left.add(i)
            taken_right.add(j)
            pairs.append((i, j))
    return pairs
