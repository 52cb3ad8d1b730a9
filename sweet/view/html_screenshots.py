"""Screenshots in the page that `sweet view --html` writes: small JPEG pictures in data: addresses, and words for those
that are not there.

The pictures of a page have a bound together. What does not fit any more is named instead, and counted.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from html import escape

from sweet.tasks.trajectory import Turn
from sweet.view.screenshots import Album, Picture, Unreadable, scaled
from sweet.view.text import printable_line

WIDTH = 480
HEIGHT = 1600
"""Pixels of an embedded picture; what is longer is cut off below."""
QUALITY = 75
TOGETHER = 48 * 2**20
"""Characters of all data: addresses of a page."""


class Figures:
    """The pictures of one page, in the order in which they are asked for.

    Attributes:
        left_out: pictures that did not fit into the bound.
    """

    def __init__(self, album: Album, room: int = TOGETHER) -> None:
        self.album = album
        self.room = room
        self.left_out = 0

    def turn(self, turn: Turn) -> str:
        """The page of a turn."""
        return self._figure(self.album.of_turn(turn), "what the human sees")

    def reference(self, page: str) -> str:
        """The page in mind."""
        return self._figure(self.album.of_page(page), "the page in mind")

    def _figure(self, picture: Picture, title: str) -> str:
        """As HTML. `title` is ours."""
        shot = picture.screenshot
        if shot is None or not self.album.draw:
            return _words(title, picture.told)
        try:
            address, width, height = _embedded(shot.png)
        except Unreadable as reason:
            return _words(title, f"{reason}: {picture.told}")
        if len(address) > self.room:
            self.left_out += 1
            return _words(title, f"left out, the page is full: {picture.told}")
        self.room -= len(address)
        return (
            f'<figure><img loading="lazy" decoding="async" alt="{title}" width="{width}" height="{height}" '
            f'src="{address}"/><figcaption>{title} · {shot.width} × {shot.height}</figcaption></figure>'
        )


def _words(title: str, told: str) -> str:
    return f"<figure><figcaption>{title}: {escape(printable_line(told))}</figcaption></figure>"


@lru_cache(maxsize=64)
def _embedded(png: bytes) -> tuple[str, int, int]:
    """A data: address, width and height of the picture in it. The bytes are ours: the pixels are drawn anew."""
    image = scaled(png, WIDTH, HEIGHT)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}", image.width, image.height
