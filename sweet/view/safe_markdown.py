"""Text from models, files and servers, made harmless in Markdown, and tables of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sweet.view.text import printable_line

_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&$]")


def code(text: str) -> str:
    """Any text as a code span: nothing in it is read as markup, a link or somebody's name."""
    shown = printable_line(text).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}" if shown else ""


def prose(text: str) -> str:
    """Any text on one line, read as nothing but itself."""
    return _SPECIAL.sub(r"\\\g<0>", printable_line(text)).replace("@", "@<!-- -->")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """A table of cells that are Markdown already.

    Args:
        align: a letter a column, `r` for figures; without it all columns but the first are figures.
    """
    letters = align or "-" + "r" * (len(header) - 1)
    marks = ["---:" if letter == "r" else "---" for letter in letters]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, marks, *rows))
