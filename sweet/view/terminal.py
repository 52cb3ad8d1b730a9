"""Words and colours that describe dialogues on terminals.

Nothing here prints. All text of models and files passes through `sweet.view.text` and is never interpreted as markup.
No meaning depends on a colour alone, so that NO_COLOR loses nothing.
"""

from __future__ import annotations

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


def format_number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def tests_passed(passed: int | None, total: int | None) -> str:
    return f"{passed}/{total}" if total else "–"


def signed(value: float) -> str:
    return f"{value:+.3f}"
