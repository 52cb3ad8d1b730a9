"""Reads what a page of `sweet view --html` has compressed."""

from __future__ import annotations

import re
from typing import Any

from sweet.view.packed import unpacked

CHUNK = re.compile(r'<script type="application/octet-stream" id="(\w+)">([^<]*)</script>\n')


def opened(text: str) -> str:
    """Return a page with its dialogues as HTML in place of the compressed ones."""
    return CHUNK.sub(lambda found: "" if found[1] == "rows" else "".join(unpacked(found[2])), text)


def rows(text: str) -> list[dict[str, Any]]:
    """Return the rows of the table of a page."""
    (found,) = [unpacked(data) for name, data in CHUNK.findall(text) if name == "rows"]
    return [dict(zip([key for key, _ in found["columns"]], row, strict=True)) for row in found["rows"]]
