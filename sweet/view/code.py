"""Which parts of a text are code."""

from __future__ import annotations

import re
from dataclasses import dataclass

HIGHLIGHTED = 50_000
"""Characters up to which code is highlighted: the highlighter is slow on what nobody reads."""

LANGUAGES = {"": None, "py": "python", "python": "python", "python3": "python", "html": "html", "css": "css"}
"""Words behind a fence, and the highlighter for them; None is the one of the task."""

_FENCED = re.compile(r"^[ \t]*```[ \t]*(?P<word>[\w+-]*)[ \t]*\n(?P<code>.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)


@dataclass(frozen=True)
class Piece:
    """A part of a text; `language` is empty for prose."""

    text: str
    language: str = ""


def pieces(text: str, language: str, *, whole: bool) -> list[Piece]:
    """The text in parts, prose and fenced code; the fences themselves stay with the prose, so that nothing is lost.

    `language` is that of a fence without a word, and with `whole` that of a text without any fence.
    """
    if len(text) > HIGHLIGHTED:
        return [Piece(text)]
    found: list[Piece] = []
    position = 0
    for match in _FENCED.finditer(text):
        start, end = match.span("code")
        found.append(Piece(text[position:start].removesuffix("\n")))
        word = match["word"].lower()
        found.append(Piece(text[start:end].removesuffix("\n"), LANGUAGES.get(word, "text") or language))
        position = end
    if not found:
        return [Piece(text, language if whole else "")]
    rest = text[position:].removesuffix("\n")
    return [piece for piece in [*found, Piece(rest)] if piece.text]
