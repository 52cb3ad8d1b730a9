"""Escape text from models, files and servers for Markdown, and build Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sweet.view.text import printable_line

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&$]")


def code(text: str) -> str:
    """Return any text as a code span, in which no markup, link or mention is interpreted."""
    shown = printable_line(text).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}" if shown else ""


def prose(text: str) -> str:
    """Escape any text to one line of literal text."""
    return _SPECIAL.sub(r"\\\g<0>", printable_line(text)).replace("@", "@<!-- -->")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table of cells that are Markdown already.

    Args:
        align: one letter per column, `r` for right-aligned; by default all columns but the first are right-aligned.
    """
    letters = align or "-" + "r" * (len(header) - 1)
    marks = ["---:" if letter == "r" else "---" for letter in letters]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, marks, *rows))
