"""The columns of the table: their values, their widths, and the choice of those that fit.

A column without any value is omitted. The trajectory's id gets the width that the other columns leave; if that is too
little, the least important columns are dropped first. A truncated id keeps most of its end, because the ids of a run
have the same beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sweet.view.records import Summary
from sweet.view.selection import SortKey
from sweet.view.terminal import STYLES, format_number
from sweet.view.text import printable_line

GAP = 2
MIN_ID = 14
"""Cells that the id gets before any other column."""
MAX_ID = 64
"""Most cells of an id."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: shown in the header.
        value: returns its value for a trajectory; None if unknown.
        sort: the sort key of `sweet.view.selection`.
        shown: formats a number; other values are made printable when they are drawn.
    """

    title: str
    value: Callable[[Summary], str | float | None]
    sort: SortKey
    shown: Callable[[float], str] | None = None

    @property
    def right(self) -> bool:
        """Whether it contains numbers, which are right-aligned."""
        return self.shown is not None

    def text(self, summary: Summary) -> str:
        value = self.value(summary)
        if self.shown is not None:
            return format_number(None) if value is None else self.shown(float(value))
        return printable_line(str(value or ""))

    def needs(self, summaries: Sequence[Summary]) -> int:
        """Return the cells that its widest row needs; 0 if no row has a value."""
        values = {value for summary in summaries if (value := self.value(summary)) not in (None, "")}
        if not values:
            return 0
        if self.shown is not None:
            numbers = [float(value) for value in values if value is not None]
            texts = [self.shown(number) for number in (min(numbers), max(numbers))]
        else:
            texts = [str(value) for value in values]
        return max(cell_len(self.title) + 1, _widest(texts))


def _widest(texts: Sequence[str]) -> int:
    """Return the cells of the widest text; fast for ASCII, which is the usual case."""
    joined = "".join(texts)
    if joined.isascii() and joined.isprintable():
        return max(map(len, texts))
    return max(cell_len(printable_line(text)) for text in texts)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def outcome(summary: Summary) -> str:
    """Return how the answer scored, or how the dialogue ended if it was not scored."""
    return summary.outcome or summary.ended


def _other_task(summary: Summary) -> str:
    """Return the task if the id does not begin with it."""
    return "" if summary.id.startswith(summary.task_id) else summary.task_id


OUTCOME = Column("outcome", outcome, "outcome")
TRAJECTORY = Column("dialogue", lambda summary: summary.id, "order")
COLUMNS = (
    OUTCOME,
    Column("reward", lambda summary: summary.reward, "reward", format_number),
    Column("turns", lambda summary: summary.turns, "turns", _count),
    Column("tokens", lambda summary: summary.tokens, "tokens", _count),
    Column("seconds", lambda summary: summary.seconds, "seconds", _tenths),
    Column("fault", lambda summary: "" if summary.fault == outcome(summary) else summary.fault, "fault"),
    Column("task", _other_task, "task"),
    TRAJECTORY,
)
FIRST_TO_GO = ("task", "seconds", "tokens", "turns", "fault", "reward")
"""Titles of the columns that are dropped on a narrow terminal, in this order."""


def needs_of(summaries: Sequence[Summary]) -> dict[Column, int]:
    """Return the cells that each column needs for these trajectories."""
    return {column: column.needs(summaries) for column in COLUMNS}


@dataclass(frozen=True)
class Layout:
    """The columns that fit, each with its width in cells."""

    columns: tuple[tuple[Column, int], ...]

    @classmethod
    def of(cls, needs: Mapping[Column, int], width: int) -> Layout:
        """Return the layout for a width in cells."""
        kept = [column for column in COLUMNS if needs[column] or column is TRAJECTORY]
        wanted = min(max(needs[TRAJECTORY], MIN_ID), MAX_ID)
        rest = width
        for title in ("", *FIRST_TO_GO):
            kept = [column for column in kept if column.title != title]
            rest = width - sum(needs[column] + GAP for column in kept if column is not TRAJECTORY)
            if rest >= min(wanted, max(MIN_ID, width // 3)):
                break
        return cls(tuple((column, max(rest, 1) if column is TRAJECTORY else needs[column]) for column in kept))

    def header(self, sort: str, reverse: bool) -> Text:
        """Return the titles, with an arrow at the column that the rows are sorted by."""
        arrow = "▼" if reverse else "▲"
        if (sort, reverse) == ("order", False):
            sort = ""  # the order of the file is the default and has no arrow
        line = Text(no_wrap=True, end="")
        for column, width in self.columns:
            title = column.title + (arrow if column.sort == sort else "")
            line.append(fitted(title, width, right=column.right), "bold underline" if column.sort == sort else "bold")
            line.append(" " * GAP)
        return line

    def row(self, summary: Summary) -> Text:
        line = Text(no_wrap=True, end="")
        for column, width in self.columns:
            style = STYLES.get(outcome(summary), "") if column is OUTCOME else ""
            style = "yellow" if column.title == "fault" else style
            line.append(fitted(column.text(summary), width, right=column.right), style)
            line.append(" " * GAP)
        return line

    def whole(self, summary: Summary) -> Iterator[Column]:
        """Yield the columns that show a trajectory's value without truncation."""
        for column, width in self.columns:
            if cell_len(column.text(summary)) <= width:
                yield column

    def at(self, cell: int) -> Column | None:
        """Return the column at an offset in cells from the left."""
        for column, width in self.columns:
            if 0 <= cell < width + GAP:
                return column
            cell -= width + GAP
        return None


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Pad a text to exactly `width` cells, or truncate it with an ellipsis in its first third."""
    length = cell_len(text)
    if length <= width:
        return " " * (width - length) + text if right else text + " " * (width - length)
    behind = (width - 1) * 2 // 3
    ending = text[len(text) - behind :]
    while cell_len(ending) > behind:
        ending = ending[1:]
    return set_cell_size(text, width - 1 - cell_len(ending)) + "…" + ending
