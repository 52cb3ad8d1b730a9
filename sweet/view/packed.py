"""Compressed data inside an HTML page: zlib, then base64, in a script element of a type that no browser runs.

A page's script opens it with the browser's DecompressionStream. base64 has no character that HTML reads as markup, so
no text can end the element early.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

LEVEL = 9


def packed(name: str, content: Any) -> str:
    """Return a script element with `content` as compressed JSON.

    Args:
        name: the element's id, letters and digits.
    """
    raw = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    text = base64.b64encode(zlib.compress(raw, LEVEL)).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{text}</script>\n'


def unpacked(text: str) -> Any:
    """Return the content of the element that `packed` made."""
    return json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
