"""Reads what a page of `sweet view --html` has compressed."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

CHUNK = re.compile(r'<script type="application/octet-stream" id="(\w+)">([^<]*)</script>\n')


def opened(text: str) -> str:
    """Return a page with its dialogues as HTML in place of the compressed ones."""
    return CHUNK.sub(lambda found: "" if found[1] == "rows" else "".join(unpacked(found[2])), text)


def rows(text: str) -> list[dict[str, Any]]:
    """Return the rows of the table of a page."""
    (found,) = [unpacked(data) for name, data in CHUNK.findall(text) if name == "rows"]
    return [dict(zip([key for key, _ in found["columns"]], row, strict=True)) for row in found["rows"]]


def unpacked(text: str) -> Any:
    """Return the content of a compressed element."""
    return json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
