"""Screenshots as Pillow images: check that Pillow is installed, decode a PNG, draw the picture of a missing page."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweet.errors import SweetError, UsageError
from sweet.installation import install_command
from sweet.render.page import Screenshot

if TYPE_CHECKING:
    from PIL.Image import Image

BLACK_SIDE = 224
"""Side in pixels of the black square that a missing page is scored as (the published protocol)."""


def require_pillow() -> None:
    """Check that Pillow can be imported.

    Raises:
        UsageError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "Without Pillow no screenshot can be read.", where="pillow", fix=install_command("html")
        ) from error


def read_image(png: bytes) -> Image:
    """Decode a PNG to an RGB image, with transparent pixels on white.

    Raises:
        SweetError: the PNG cannot be read.
    """
    require_pillow()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as opened:
            opened.load()
            if opened.mode == "RGB":
                return opened.copy()
            rgba = opened if opened.mode == "RGBA" else opened.convert("RGBA")
            # Opaque, as all of Firefox's: nothing of the white would be seen.
            if rgba.getchannel("A").getextrema() == (255, 255):
                return rgba.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SweetError(
            f"A screenshot cannot be read: {error}.", fix="remove the run's screenshots/ folder"
        ) from error
    white = Image.new("RGBA", rgba.size, "white")
    white.alpha_composite(rgba)
    return white.convert("RGB")


@functools.cache
def black_square() -> bytes:
    """Return the PNG that a missing page is scored as."""
    require_pillow()
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (BLACK_SIDE, BLACK_SIDE), "black").save(buffer, "PNG")
    return buffer.getvalue()


MOST_PIXELS = 2_000_000
"""Maximum pixels of an image: a page of 1280 x 1562 is not scaled. For Qwen2-VL, 784 pixels a token, it is about 2,550
tokens."""


def scaled(shots: Sequence[Screenshot], most: int = MOST_PIXELS) -> tuple[bytes, ...]:
    """Return the screenshots as PNG files of at most `most` pixels; unchanged if none has more.

    Raises:
        SweetError: a screenshot that must be scaled cannot be read.
        UsageError: Pillow, which scales them, is not installed.
    """
    largest = max(shot.width * shot.height for shot in shots)
    if largest <= most:
        return tuple(shot.png for shot in shots)
    factor = math.sqrt(most / largest)
    return tuple(_scaled(shot, factor) for shot in shots)


def _scaled(shot: Screenshot, factor: float) -> bytes:
    from PIL.Image import Resampling

    size = (max(1, int(shot.width * factor)), max(1, int(shot.height * factor)))
    buffer = io.BytesIO()
    read_image(shot.png).resize(size, Resampling.LANCZOS).save(buffer, "PNG")
    return buffer.getvalue()
