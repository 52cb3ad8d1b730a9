"""The photograph that the published protocol puts into every page: image 48 of picsum.photos.

`sweet data assets --photo` downloads it once, in its full size. It is served for the addresses of image 48 in the size
that an address names, scaled and cropped around its centre, as the service does. The service encodes its files anew
from time to time, so that there is no digest to verify it against; instead the digest of the file that was used is
recorded with the dialogues and the scores.
"""

from __future__ import annotations

import hashlib
import io
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sweet.errors import UsageError
from sweet.render.page import PHOTO
from sweet.render.screenshot_images import require_pillow

if TYPE_CHECKING:
    from PIL.Image import Image

PHOTO_FILE = "picsum-48.jpg"
"""Its name in the folder of the assets."""

FETCH_PHOTO = "sweet data assets --photo"

SMALLEST_WIDTH = 1000
"""Minimum width in pixels of the file, below which it would be enlarged in ordinary pages."""

_MOST_PIXELS = 60_000_000
_MOST_SIZES = 64
"""Number of sizes that are kept in memory."""


def read_photo(data: bytes) -> Image:
    """Decode the file as an RGB image.

    Raises:
        ValueError: it is not a JPEG, or too small or too large.
        UsageError: Pillow is not installed.
    """
    require_pillow()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as opened:
            if opened.width < SMALLEST_WIDTH or opened.width * opened.height > _MOST_PIXELS:
                raise ValueError(f"it has {opened.width} x {opened.height} pixels")
            return opened.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("it is not a JPEG file that can be read") from error


def photo_rule(folder: Path) -> str:
    """Return the picture rule `photo@DIGEST` for the photograph in a folder, with 12 hex digits of its sha256.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    path = folder / PHOTO_FILE
    try:
        data = path.read_bytes()
        read_photo(data)
    except FileNotFoundError as error:
        raise UsageError("The photograph of pages has not been downloaded.", where=path, fix=FETCH_PHOTO) from error
    except OSError as error:
        raise UsageError(f"The photograph of pages cannot be read: {error.strerror}.", where=path) from error
    except ValueError as error:
        what = f"This is not the photograph of pages: {error}."
        raise UsageError(what, where=path, fix=f"{FETCH_PHOTO} --force") from error
    return f"{PHOTO}@{hashlib.sha256(data).hexdigest()[:12]}"


class Photo:
    """The photograph of a rule, scaled to any size. Thread-safe.

    Raises:
        UsageError: it is missing, cannot be read, or is another file than that of the rule.
    """

    def __init__(self, folder: Path, rule: str) -> None:
        present = photo_rule(folder)
        if present != rule:
            raise UsageError(
                f"The pages were rendered with another file of the photograph ({rule}) than the one here ({present}).",
                where=folder / PHOTO_FILE,
                fix="copy that file here",
            )
        self._image = read_photo((folder / PHOTO_FILE).read_bytes())
        self.png = lru_cache(_MOST_SIZES)(self._png)
        """Returns it as a PNG of a width and a height in pixels, cropped around its centre to these proportions."""

    def _png(self, width: int, height: int) -> bytes:
        from PIL.Image import Resampling

        across, down = self._image.size
        scale = max(width / across, height / down)
        left, top = (across - width / scale) / 2, (down - height / scale) / 2
        box = (max(0.0, left), max(0.0, top), min(across, across - left), min(down, down - top))
        buffer = io.BytesIO()
        scaled = self._image.resize((width, height), Resampling.LANCZOS, box, reducing_gap=3.0)
        scaled.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()
