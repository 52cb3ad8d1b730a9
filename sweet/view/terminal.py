"""Words, colours and the table that describe trajectories on terminals.

Nothing here prints. All text of models and files passes through `sweet.view.text` and is never interpreted as markup.
No meaning depends on a colour alone, so that NO_COLOR loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from sweet.units import count
from sweet.view.pairs import Pair
from sweet.view.records import Summary
from sweet.view.text import printable_line

NARROW = 64
"""Columns below which a table is shown as a list."""

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


@dataclass(frozen=True)
class TrajectoryTable:
    """One line per trajectory; on a narrow terminal two, the id and its values."""

    summaries: Sequence[Summary]
    title: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._narrow() if options.max_width < NARROW else self._wide()
        yield Text(printable_line(self.title), style="italic")
        yield rows
        if self.caption:
            yield Text(printable_line(self.caption), style="dim italic")

    def _wide(self) -> Table:
        table = Table("#", Column("id", overflow="fold"), Column("outcome", overflow="fold"))
        for name in ("reward", "tests", "turns", "tokens", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        table.columns[0].justify = "right"
        for number, summary in enumerate(self.summaries, 1):
            table.add_row(
                str(number),
                Text(printable_line(summary.id)),
                outcome_text(summary),
                format_number(summary.reward),
                tests_passed(summary.passed, summary.total),
                str(summary.turns),
                "–" if summary.tokens is None else f"{summary.tokens:,}",
                format_number(summary.seconds, 1),
            )
        return table

    def _narrow(self) -> Table:
        table = Table.grid(
            Column("#", justify="right", style="dim"), Column("id", overflow="fold"), padding=(0, 1, 0, 0)
        )
        for number, summary in enumerate(self.summaries, 1):
            values = outcome_text(summary).append(f" {format_number(summary.reward)}")
            if summary.total:
                values.append(f" · {tests_passed(summary.passed, summary.total)}")
            values.append(f" · {count(summary.turns, 'turn')}")
            table.add_row(str(number), Text(printable_line(summary.id)).append("\n").append_text(values))
        return table


@dataclass(frozen=True)
class PairTable:
    """One line for two dialogues of a task, A and B."""

    pairs: Sequence[Pair]
    title: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(printable_line(self.title), style="italic")
        table = Table("#", Column("A", overflow="fold"), Column("B", overflow="fold"))
        for name in ("reward A", "reward B", "change"):
            table.add_column(name, justify="right")
        for number, pair in enumerate(self.pairs, 1):
            sides = [Text(printable_line(side.id)).append(" ").append_text(outcome_text(side)) for side in pair]
            rewards = [format_number(side.reward) for side in pair]
            change = "–" if pair.change is None else f"{pair.change:+.2f}"
            table.add_row(str(number), *sides, *rewards, change)
        yield table
        if self.caption:
            yield Text(printable_line(self.caption), style="dim italic")


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
