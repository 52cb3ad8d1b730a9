"""Embed screenshots in HTML pages as small JPEG pictures in data: URLs, or describe missing ones.

The pictures of a page have a common size limit. A picture that exceeds it is described instead, and counted.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache

from markupsafe import Markup

from sweet.results.pages import line
from sweet.tasks.trajectory import Turn
from sweet.view.run_screenshots import Picture, RunScreenshots, Unreadable, scaled

WIDTH = 480
HEIGHT = 1600
"""Pixels of an embedded picture; longer pictures are cropped at the bottom."""
QUALITY = 75
PAGE_LIMIT = 48 * 2**20
"""Most characters of all data: URLs of a page."""


class HtmlScreenshots:
    """The pictures of one HTML page, which share a size limit in the order of the calls.

    Attributes:
        room: characters that are left for further pictures.
        omitted: the number of pictures that exceeded the limit.
    """

    def __init__(self, screenshots: RunScreenshots) -> None:
        self.screenshots = screenshots
        self.room = PAGE_LIMIT
        self.omitted = 0

    def turn(self, turn: Turn) -> Markup:
        """Return the screenshot of the page of a turn."""
        return self._figure(self.screenshots.turn_picture(turn), "what the human sees")

    def reference(self, page: str) -> Markup:
        """Return the screenshot of the reference page."""
        return self._figure(self.screenshots.page_picture(page), "the reference page")

    def _figure(self, picture: Picture, title: str) -> Markup:
        """Return a <figure> element. `title` is trusted text."""
        shot = picture.screenshot
        if shot is None or not self.screenshots.draw:
            return _caption(title, picture.description)
        try:
            url, width, height = _embedded(shot.png)
        except Unreadable as reason:
            return _caption(title, f"{reason}: {picture.description}")
        if len(url) > self.room:
            self.omitted += 1
            return _caption(title, f"omitted, the page is full: {picture.description}")
        self.room -= len(url)
        return Markup(
            f'<figure><img loading="lazy" decoding="async" alt="{title}" width="{width}" height="{height}" '
            f'src="{url}"/><figcaption>{title} · {shot.width} × {shot.height}</figcaption></figure>'
        )


def _caption(title: str, description: str) -> Markup:
    return Markup(f"<figure><figcaption>{title}: {line(description)}</figcaption></figure>")


@lru_cache(maxsize=64)
def _embedded(png: bytes) -> tuple[str, int, int]:
    """Return a data: URL and the width and height of its picture, which is encoded again from its pixels."""
    image = scaled(png, WIDTH, HEIGHT)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}", image.width, image.height
