"""Scale screenshots down for vision models, for which the cost of an image grows with its pixels.

Screenshots that are shown together are scaled by the same factor, so that equal sizes stay equal.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from sweet.render.page import Screenshot
from sweet.render.screenshot_images import read_image

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
