"""The types of rendering: settings, the screenshot with its visible blocks, failures, the key of a page, and renderers.

Nothing here needs a browser, so that the screenshots of a run can be found and shown without one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal, Protocol

from pydantic import ConfigDict, Field

VERSION = 3
"""A part of `page_key`, incremented whenever the same page with the same settings renders differently than before."""

PLACEHOLDER = "placeholder"
"""The picture rule by which a gradient stands for each image."""

PHOTO = "photo"
"""The picture rule by which the published protocol's photograph is shown; recorded as `photo@DIGEST`."""

LONGEST_TEXT = 2000
"""Maximum characters of a block's text."""

MOST_LENGTH = 1e7
"""Maximum of a length in CSS px."""

Length = Annotated[float, Field(allow_inf_nan=False, ge=-MOST_LENGTH, le=MOST_LENGTH)]

Reason = Literal["empty", "too_large", "timeout", "memory", "crashed", "blocked"]


@dataclass(frozen=True)
class RenderSettings:
    """The settings and limits of rendering. Lengths are in CSS px."""

    width: int = 1280
    """Width of the window and of every screenshot."""
    height: int = 720
    """Height of the window. The screenshot of a page without a doctype may be lower; that of a page with height 0 has
    the height of the window."""
    max_height: int = 10_000
    """Maximum height of a screenshot."""
    max_bytes: int = 2_000_000
    """Maximum size of the page's source in UTF-8; pages written by models have thousands of bytes."""
    timeout: float = 15.0
    """Seconds for one page, from its first byte to the end of its screenshot."""
    max_memory: int = 3000
    """Maximum memory in MB of all processes of a browser; without a page they use 500 to 900."""
    max_blocks: int = 2000
    """Maximum number of visible blocks, in the order of the document."""
    pictures: str = PLACEHOLDER
    """What is shown for images of picsum.photos: `placeholder`, or `photo@DIGEST` (see `sweet.render.window`)."""

    def showing(self, pictures: str) -> RenderSettings:
        """Return the same settings with another picture rule."""
        return replace(self, pictures=pictures)


@dataclass(frozen=True)
class Block:
    """One visible box of a rendered page, in document coordinates. The bounds hold for what `measure.js` reports and
    what is read from a file.

    Attributes:
        tag: the element's name in lower case.
        text: its own text without that of child elements, with whitespace collapsed; "" for a box without text.
        x, y: distance of its left and top edges from the page's, in CSS px.
        width, height: its size in CSS px.
        color: the colour of the text, "#rrggbb".
        background: "#rrggbb", or "" if it is transparent.
        font_size: in CSS px.
        bold: whether the font weight is 600 or more.
        image: whether it is an image, a canvas, or a box with a background image.
        text_x, text_width: distance of the left edge of its own text from the page's, and the width of that text.
            Both are 0 without text, and for text typed into a field.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    tag: Annotated[str, Field(max_length=40)]
    text: Annotated[str, Field(max_length=LONGEST_TEXT)]
    x: Length
    y: Length
    width: Length
    height: Length
    color: Annotated[str, Field(pattern="^#[0-9a-f]{6}$")]
    background: Annotated[str, Field(pattern="^(#[0-9a-f]{6})?$")]
    font_size: Length
    bold: bool
    image: bool
    text_x: Length = 0.0
    text_width: Length = 0.0


@dataclass(frozen=True)
class Screenshot:
    """A rendered page; `width` and `height` of the PNG are in pixels."""

    png: bytes
    width: int
    height: int
    blocks: tuple[Block, ...]

    @property
    def sha256(self) -> str:
        """The digest of the PNG."""
        return hashlib.sha256(self.png).hexdigest()


class RenderFailed(Exception):
    """A page cannot be rendered because of its content. `str()` is a sentence for people.

    Attributes:
        reason: `empty`: there is no page; `too_large`: its source or its screenshot is too large; `timeout`: it took
            too long; `memory`: it used too much; `crashed`: the browser ended while rendering it; `blocked`: it
            navigated to another address, or cannot be measured.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail

    @property
    def lasting(self) -> bool:
        """Whether the page fails each time; otherwise it may succeed on a less busy machine."""
        return self.reason in ("empty", "too_large", "blocked")

    def __str__(self) -> str:
        return self.detail


def page_key(html: str, settings: RenderSettings) -> str:
    """Return the key of a page's screenshot: the sha256 of the page, the settings and `VERSION`."""
    parameters = json.dumps({"version": VERSION, **asdict(settings)}, sort_keys=True)
    # A lone surrogate, which JSON may contain, has no UTF-8.
    return hashlib.sha256(parameters.encode() + b"\n" + html.encode("utf-8", "surrogatepass")).hexdigest()


class Renderer(Protocol):
    """Renders pages to screenshots: a pool of browsers on this machine or on a cluster, or a stand-in in tests."""

    async def shoot(self, html: str) -> Screenshot:
        """Render one page. Any number of calls may wait at once.

        Raises:
            RenderFailed: the page cannot be rendered.
            SweetError: there is no browser, or an asset that the page loads has not been downloaded.
        """
        ...
