"""Text from models, files and servers, made safe for a terminal.

A terminal obeys what it is sent: an escape sequence moves the cursor, sets the clipboard or rewrites what was shown;
a bidirectional override or a zero-width character makes code read otherwise than it runs. `printable` leaves nothing
of that kind in a text: every control, format and separator character, and every lone surrogate (which no terminal
encoding can carry), is shown as a visible mark in its place. Newline and tab stay. What is visible already is not
touched, rich markup included: draw the result as `rich.text.Text(printable(text))`, never through markup.
"""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that are shown as marks: control, format, surrogate, line and paragraph separator."""

_PLAIN = re.compile(r"[\x20-\x7e\n\t]*")
_VARIATION_SELECTORS_SUPPLEMENT = range(0xE0100, 0xE01F0)
"""Invisible marks that can carry any hidden text behind one letter."""


def mark(char: str) -> str:
    """How one character is shown: itself, a control picture (␛ for ESC) or its code point (‹U+202E›)."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) in _UNSEEN or code in _VARIATION_SELECTORS_SUPPLEMENT:
        return f"‹U+{code:04X}›"
    return char


class _Marks(dict[int, str]):
    """The table of `str.translate`, filled as characters come by."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = mark(chr(code))
        return shown


_MARKS = _Marks({ord("\n"): "\n", ord("\t"): "\t"})


def printable(text: str) -> str:
    """The text with everything that a terminal would obey, or hide, as visible marks. Idempotent."""
    return text if _PLAIN.fullmatch(text) else text.translate(_MARKS)


def printable_line(text: str) -> str:
    """The same on one line: newlines and tabs are marks too (␊, ␉)."""
    return printable(text).replace("\n", "␊").replace("\t", "␉")
