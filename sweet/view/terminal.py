"""Words and colours that describe dialogues on terminals.

Nothing here prints. All text of models and files passes through `sweet.view.text` and is never interpreted as markup.
No meaning depends on a colour alone, so that NO_COLOR loses nothing.
"""

from __future__ import annotations

from rich.text import Text

from sweet.view.records import Summary
from sweet.view.text import printable_line

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


def outcome_text(summary: Summary) -> Text:
    """Return how the answer scored, or how the dialogue ended if it was not scored; with the fault if there is one."""
    shown = summary.outcome or summary.ended
    text = Text(printable_line(shown), style=STYLES.get(shown, ""))
    if summary.fault and summary.fault != shown:
        text.append(f" ({printable_line(summary.fault)})", style="yellow")
    return text


def tests_passed(passed: int | None, total: int | None) -> str:
    return f"{passed}/{total}" if total else "–"


def signed(value: float) -> str:
    return f"{value:+.3f}"
