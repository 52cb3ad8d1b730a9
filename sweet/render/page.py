"""What rendering a page is about: its settings, the screenshot with its visible blocks, and how it can fail.

Nothing here needs a browser, so that a run's screenshots can be found and looked at where there is none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

VERSION = 2
"""Counts up whenever the same page with the same settings comes out otherwise than before: a part of `page_key`."""

Reason = Literal["empty", "too_large", "timeout", "memory", "crashed", "blocked"]


@dataclass(frozen=True)
class RenderSettings:
    """How a page is rendered, and what it may cost. Lengths in CSS px."""

    width: int = 1280
    """Width of the window and of every screenshot."""
    height: int = 720
    """Height of the window. A page without a doctype that is lower gives a lower screenshot; one without any height is
    shown as high as the window."""
    max_height: int = 10_000
    """Where a screenshot ends, however long the page is."""
    max_bytes: int = 2_000_000
    """The most that the page's text may have, in UTF-8: a page that a model writes has thousands."""
    timeout: float = 15.0
    """Seconds for one page, from its first byte to the end of its screenshot."""
    max_memory: int = 3000
    """MB that a browser may hold, all of its processes together; without a page it holds 500 to 900."""
    max_blocks: int = 2000
    """The most visible blocks that are told, in the order of the document."""


@dataclass(frozen=True)
class Block:
    """One visible box of a rendered page, in document coordinates.

    Attributes:
        tag: the element's name in lower case.
        text: its own text without that of the elements in it, whitespace folded; "" for a box that is only a colour
            or an image.
        x: distance of its left edge from the page's, in CSS px; `y`, `width` and `height` alike.
        color: of the text, "#rrggbb".
        background: "#rrggbb", "" where it is transparent.
        font_size: in CSS px.
        bold: a font weight of 600 or more.
        image: an image, a picture drawn by script, or a box with a background image.
        text_x: distance of the left edge of its own text from the page's, and `text_width` from there to the right
            edge: how the text lies in the box. Both 0 where it has no text, or one that was typed into a field.
    """

    tag: str
    text: str
    x: float
    y: float
    width: float
    height: float
    color: str
    background: str
    font_size: float
    bold: bool
    image: bool
    text_x: float = 0.0
    text_width: float = 0.0


@dataclass(frozen=True)
class Screenshot:
    """A rendered page: `width` and `height` are those of the picture, in pixels."""

    png: bytes
    width: int
    height: int
    blocks: tuple[Block, ...]

    @property
    def sha256(self) -> str:
        """Of the picture."""
        return hashlib.sha256(self.png).hexdigest()


class RenderFailed(Exception):
    """A page could not be rendered, by its own fault. `str()` says what happened, for people.

    Attributes:
        reason: `empty`: there is no page; `too_large`: more text than allowed; `timeout`: not done in time; `memory`:
            it took more than allowed; `crashed`: the browser ended under it; `blocked`: it went away to another
            address, or kept the browser from looking at it.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail

    @property
    def lasting(self) -> bool:
        """Whether the page fails each time; otherwise it may come out when the machine has less to do."""
        return self.reason in ("empty", "too_large", "blocked")

    def __str__(self) -> str:
        return self.detail


def page_key(html: str, settings: RenderSettings) -> str:
    """The name of a page's screenshot: sha256 over the page, the settings and the version of this room."""
    about = json.dumps({"version": VERSION, **asdict(settings)}, sort_keys=True)
    # A lone surrogate, which JSON can bring in, has no UTF-8.
    return hashlib.sha256(about.encode() + b"\n" + html.encode("utf-8", "surrogatepass")).hexdigest()
