"""Draw pictures on a terminal: textual-image chooses how, by the terminal's protocol or as half blocks.

Pictures are printed as half blocks on terminals with at least 256 colours unless NO_COLOR is set; otherwise the size
and the file of a picture are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from sweet.installation import install_command
from sweet.view.run_screenshots import Picture, Unreadable, scaled
from sweet.view.text import printable_line

if TYPE_CHECKING:
    from PIL import Image

WIDEST = 72
"""Most cells of a printed picture's width."""
NARROWEST = 16
"""Cells of width below which pictures are stacked vertically."""
HIGHEST = 36
"""Most rows of a picture that is not shown whole; longer ones are cropped at the bottom."""
GAP = 2


def can_draw(console: Console) -> bool:
    """Return whether the console can draw pictures."""
    return console.is_terminal and not console.no_color and console.color_system in ("256", "truecolor")


def described(title: str, picture: Picture) -> Text:
    return Text(f"{title}: {printable_line(picture.description)}")


def caption(title: str, picture: Picture, image: Image.Image) -> Text:
    """Return what is above a drawn picture, which `image` may show the beginning of."""
    shot = picture.screenshot
    assert shot is not None
    words = Text(f"{title} · {shot.width} × {shot.height}", style="dim")
    shown = round(image.height * shot.width / image.width)
    return words.append(f", the first {shown} shown") if shown < shot.height - shot.width // image.width else words


@dataclass(frozen=True)
class PictureRow:
    """Pictures side by side at the same scale, each below its title; descriptions if they are not drawn."""

    pictures: Sequence[tuple[str, Picture]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not can_draw(console) or not any(picture.screenshot for _, picture in self.pictures):
            yield from (described(title, picture) for title, picture in self.pictures)
            return
        across = (options.max_width + GAP) // max(len(self.pictures), 1) - GAP
        if across < NARROWEST:
            yield from (self._cell(*one, min(options.max_width, WIDEST)) for one in self.pictures)
            return
        grid = Table.grid(padding=(0, GAP, 0, 0))
        for _ in self.pictures:
            grid.add_column(width=min(across, WIDEST), overflow="fold")
        grid.add_row(*(self._cell(*one, min(across, WIDEST)) for one in self.pictures))
        yield grid

    def _cell(self, title: str, picture: Picture, width: int) -> RenderableType:
        if picture.screenshot is None:
            return described(title, picture)
        try:
            from textual_image.renderable import HalfcellImage
        except ImportError:
            return Text(f"{title}: drawing pictures requires {install_command('html')}")
        try:
            image = scaled(picture.screenshot.png, width, 2 * HIGHEST)  # a pixel is half a cell high
        except Unreadable as reason:
            return Text(f"{title}: {reason}")
        return Group(caption(title, picture, image), HalfcellImage(image, width=width, height=-(-image.height // 2)))
