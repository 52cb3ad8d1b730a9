"""Make text from models, files and servers safe for a terminal.

A terminal executes escape sequences: they move the cursor, set the clipboard or overwrite the screen; a bidirectional
override or a zero-width character makes code look different from what it does. `printable` replaces every control,
format and separator character, and every lone surrogate (which no terminal encoding can represent), by a visible mark.
Newline and tab stay. Visible characters stay too, rich markup included: draw the result as
`rich.text.Text(printable(text))`, never as markup. JSON has escapes for such characters (`printable_json`).

The words and colours that describe dialogues are here too. No meaning depends on a colour alone, so that NO_COLOR
loses nothing.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

NARROW = 64
"""Columns below which less is shown."""

STYLES = {
    "passed": "green",
    "failed": "red",
    "error": "red",
    "crash": "red",
    "invalid": "red",
    "timeout": "yellow",
    "no_answer": "yellow",
}
VERDICTS = {True: ("pass", "green"), False: ("FAIL", "red"), None: ("?", "dim")}

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that are shown as marks: control, format, surrogate, line and paragraph separator."""

_PLAIN = re.compile(r"[\x20-\x7e\n\t]*")
_VARIATION_SELECTORS_SUPPLEMENT = range(0xE0100, 0xE01F0)
"""Invisible characters that can hide any text after a letter."""


def mark(char: str) -> str:
    """Return a visible form of one character: itself, a control picture (␛ for ESC) or its code point (‹U+202E›)."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) in _UNSEEN or code in _VARIATION_SELECTORS_SUPPLEMENT:
        return f"‹U+{code:04X}›"
    return char


class _Table(dict[int, str]):
    """A table for `str.translate`, filled on demand."""

    def __init__(self, known: dict[int, str], shown: Callable[[str], str]) -> None:
        super().__init__(known)
        self._shown = shown

    def __missing__(self, code: int) -> str:
        shown = self[code] = self._shown(chr(code))
        return shown


_LINES = {ord("\n"): "\n", ord("\t"): "\t"}
_MARKS = _Table(_LINES, mark)
_ESCAPES = _Table({**_LINES, 0x7F: "\\u007f"}, lambda char: char if mark(char) == char else json.dumps(char)[1:-1])


def printable(text: str) -> str:
    """Replace everything that a terminal would execute or hide by visible marks. Idempotent."""
    return text if _PLAIN.fullmatch(text) else text.translate(_MARKS)


def printable_json(text: str) -> str:
    """Write everything in JSON that a terminal would execute or hide as \\u escapes, which read as the same value."""
    return text if _PLAIN.fullmatch(text) else text.translate(_ESCAPES)


def printable_line(text: str) -> str:
    """Like `printable`, on one line: newlines and tabs become marks too (␊, ␉)."""
    return printable(text).replace("\n", "␊").replace("\t", "␉")


def format_number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def tests_passed(passed: int | None, total: int | None) -> str:
    return f"{passed}/{total}" if total else "–"


def signed(value: float) -> str:
    return f"{value:+.3f}"
