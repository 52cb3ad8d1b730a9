"""Draw pictures on a terminal: each cell is an upper half block whose two colours are two pixels, one above the other.

Cells are about twice as high as wide, so the pixels are square. Pictures are drawn on terminals with at least 256
colours unless NO_COLOR is set. Otherwise the size and the file of a picture are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.color import Color
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from sweet.view.run_screenshots import Picture, Unreadable, scaled
from sweet.view.text import printable_line

if TYPE_CHECKING:
    from PIL import Image

UPPER_HALF = "▀"
WIDEST = 72
"""Most cells of a picture's width."""
NARROWEST = 16
"""Cells of width below which pictures are stacked vertically."""
HIGHEST = 36
"""Most cells of a picture's height; longer pictures are cropped at the bottom."""
GAP = 2

Colour = tuple[int, int, int]


def half_blocks(image: Image.Image) -> list[list[tuple[Colour, Colour | None]]]:
    """Return the cells of an RGB picture row by row: upper and lower pixel, None below an odd last row."""
    width, height = image.size
    pixel: Any = image.load()
    return [
        [(pixel[x, y], pixel[x, y + 1] if y + 1 < height else None) for x in range(width)] for y in range(0, height, 2)
    ]


@dataclass(frozen=True)
class HalfBlocks:
    """An RGB picture whose pixels are one cell wide and half a cell high."""

    image: Image.Image

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in half_blocks(self.image):
            for (upper, lower), cells in groupby(row):
                yield Segment(UPPER_HALF * len(list(cells)), _style(upper, lower))
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.image.width, self.image.width)


def _style(upper: Colour, lower: Colour | None) -> Style:
    return Style.from_color(Color.from_rgb(*upper), None if lower is None else Color.from_rgb(*lower))


def can_draw(console: Console) -> bool:
    """Return whether the console can draw pictures."""
    return console.is_terminal and not console.no_color and console.color_system in ("256", "truecolor")


@dataclass(frozen=True)
class PictureRow:
    """Pictures side by side at the same scale, each below its title; descriptions if they are not drawn."""

    pictures: Sequence[tuple[str, Picture]]
    draw: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.draw or not can_draw(console):
            for title, picture in self.pictures:
                yield Text(f"{title}: {printable_line(picture.description)}")
            return
        across = (options.max_width + GAP) // max(len(self.pictures), 1) - GAP
        if across < NARROWEST:
            for title, picture in self.pictures:
                yield self._cell(title, picture, min(options.max_width, WIDEST))
            return
        width = min(across, WIDEST)
        grid = Table.grid(padding=(0, GAP, 0, 0))
        for _ in self.pictures:
            grid.add_column(width=width, overflow="fold")
        grid.add_row(*[self._cell(title, picture, width) for title, picture in self.pictures])
        yield grid

    def _cell(self, title: str, picture: Picture, width: int) -> RenderableType:
        shot = picture.screenshot
        if shot is None:
            return Text(f"{title}: {printable_line(picture.description)}")
        try:
            image = scaled(shot.png, width, 2 * HIGHEST)
        except Unreadable as reason:
            return Text(f"{title}: {reason}")
        words = Text(f"{title} · {shot.width} × {shot.height}", style="dim")
        shown = round(image.height * shot.width / width)
        if image.height == 2 * HIGHEST and shown < shot.height:
            words.append(f", the first {shown} shown")
        return Group(words, HalfBlocks(image))
