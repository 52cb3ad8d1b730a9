"""Make text from models, files and servers safe for a terminal.

A terminal executes escape sequences: they move the cursor, set the clipboard or overwrite the screen; a bidirectional
override or a zero-width character makes code look different from what it does. `printable` replaces by a visible mark:
every control, format and separator character, every lone surrogate (which no terminal encoding can represent), what is
drawn as nothing, and the combining marks of a letter beyond `MOST_MARKS`. Newline and tab stay. Visible characters stay
too, rich markup included: draw the result as `rich.text.Text(printable(text))`, never as markup. JSON has escapes for
such characters (`printable_json`).

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
_BLANK = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0}
    | {*range(0x180B, 0x1810), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}
)
"""Characters of other categories that are drawn as nothing: fillers of Hangul, the empty pattern of Braille, vowels and
joiners without a form, variation selectors, which can hide any text after a letter, and what Unicode reserves."""

MOST_MARKS = 6
"""Combining marks of a letter that are drawn; a stack of many covers the lines above and below."""
_STACK = re.compile(rf"[^\w\s\x00-\x7f]{{{MOST_MARKS + 1},}}")
"""What contains every such stack."""
_LONE = re.compile("(?<![^\x00-\x7f])[\U0001f3fb-\U0001f3ff]")  # skin tones of no emoji: rich leaves them out


def mark(char: str) -> str:
    """Return a visible form of one character: itself, a control picture (␛ for ESC) or its code point (‹U+202E›)."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) in _UNSEEN or code in _BLANK:
        return _code_point(char)
    return char


def _code_point(char: str) -> str:
    return f"‹U+{ord(char):04X}›"


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1]


def _unstacked(text: str, escape: Callable[[str], str]) -> str:
    """Replace the combining marks that are stacked beyond `MOST_MARKS`, and those of `_LONE`."""

    def replaced(match: re.Match[str]) -> str:
        chars, stacked = [], 0
        for char in match[0]:
            stacked = stacked + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
            chars.append(escape(char) if stacked > MOST_MARKS else char)
        return "".join(chars)

    return _LONE.sub(lambda match: escape(match[0]), _STACK.sub(replaced, text))


class _Table(dict[int, str]):
    """A table for `str.translate`, filled on demand."""

    def __init__(self, known: dict[int, str], escape: Callable[[str], str]) -> None:
        super().__init__(known)
        self._escape = escape

    def __missing__(self, code: int) -> str:
        escaped = self[code] = self._escape(chr(code))
        return escaped


_LINES = {ord("\n"): "\n", ord("\t"): "\t"}
_MARKS = _Table(_LINES, mark)
_ESCAPES = _Table({**_LINES, 0x7F: "\\u007f"}, lambda char: char if mark(char) == char else _escape(char))


def printable(text: str) -> str:
    """Replace everything that a terminal would execute or hide by visible marks. Idempotent."""
    return text if _PLAIN.fullmatch(text) else _unstacked(text.translate(_MARKS), _code_point)


def printable_json(text: str) -> str:
    """Write everything in JSON that a terminal would execute or hide as \\u escapes, which read as the same value."""
    return text if _PLAIN.fullmatch(text) else _unstacked(text.translate(_ESCAPES), _escape)


def printable_line(text: str) -> str:
    """Like `printable`, on one line: newlines and tabs become marks too (␊, ␉)."""
    return printable(text).replace("\n", "␊").replace("\t", "␉")


def format_number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def tests_passed(passed: int | None, total: int | None) -> str:
    return f"{passed}/{total}" if total else "–"


def signed(value: float) -> str:
    return f"{value:+.3f}"
