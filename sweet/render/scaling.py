"""Screenshots made small enough for a model that looks at them: what a picture costs grows with its pixels.

Screenshots that are shown together are scaled by one factor, so that what is equally large looks equally large.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from sweet.render.page import Screenshot
from sweet.render.screenshot_images import read_image

MOST_PIXELS = 2_000_000
"""Of one picture: a page of 1280 x 1562 as it is. Qwen2-VL, 784 pixels a token, takes about 2,550 tokens for it."""


def scaled(shots: Sequence[Screenshot], most: int = MOST_PIXELS) -> tuple[bytes, ...]:
    """The screenshots as PNG files, none of more than `most` pixels; as they are where none has more.

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
