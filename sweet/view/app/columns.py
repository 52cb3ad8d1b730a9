"""The columns of a table: their values, their widths, and the choice of those that fit.

A column without any value is omitted. The name of a row, the trajectory's id, gets the width that the other columns
leave, or shares it with a column of prose, the request; if that is too little, the least important columns are dropped
first. A truncated id keeps most of its end, because the ids of a run have the same beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sweet.view.pairs import Pair
from sweet.view.records import Summary
from sweet.view.terminal import STYLES, format_number
from sweet.view.text import printable_line

GAP = 2
MIN_ID = 14
"""Cells that the id gets before any other column."""
MAX_ID = 64
"""Most cells of an id."""
MIN_PROSE = 24
"""Cells below which a column of prose is dropped."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: shown in the header.
        value: returns its value for a row (a `Summary`, or a `Pair` of two); None if unknown.
        sort: its name as a key to sort by.
        shown: formats a number; other values are made printable when they are drawn.
        drop: on a narrow terminal the columns with the lowest numbers are dropped first; None is never dropped.
        kind: `name` identifies the row, and `prose` begins with what matters; both take the width that is left.
        style: returns the style of its text.
    """

    title: str
    value: Callable[[Any], str | float | None]
    sort: str
    shown: Callable[[float], str] | None = None
    drop: int | None = None
    kind: Literal["value", "name", "prose"] = "value"
    style: Callable[[Any], str] = lambda _: ""

    @property
    def right(self) -> bool:
        """Whether it contains numbers, which are right-aligned."""
        return self.shown is not None

    def text(self, row: Any) -> str:
        value = self.value(row)
        if self.shown is not None:
            return format_number(None) if value is None else self.shown(float(value))
        return printable_line(str(value or ""))

    def needs(self, rows: Sequence[Any]) -> int:
        """Return the cells that its widest row needs; 0 if no row has a value."""
        values = {value for row in rows if (value := self.value(row)) not in (None, "")}
        if not values:
            return 0
        if self.kind == "prose":
            return MIN_PROSE
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


def _fault(summary: Summary) -> str:
    return "" if summary.fault == outcome(summary) else summary.fault


def outcome_style(summary: Summary) -> str:
    return STYLES.get(outcome(summary), "")


TRAJECTORY = Column("dialogue", lambda summary: summary.id, "order", kind="name")
REQUEST = Column("request", lambda summary: summary.request, "request", drop=0, kind="prose")
COLUMNS = (
    Column("outcome", outcome, "outcome", style=outcome_style),
    Column("reward", lambda summary: summary.reward, "reward", format_number, drop=6),
    Column("turns", lambda summary: summary.turns, "turns", _count, drop=4),
    Column("tokens", lambda summary: summary.tokens, "tokens", _count, drop=3),
    Column("seconds", lambda summary: summary.seconds, "seconds", _tenths, drop=2),
    Column("fault", _fault, "fault", drop=5, style=lambda _: "yellow"),
    Column("task", _other_task, "task", drop=1),
    TRAJECTORY,
    REQUEST,
)
"""The columns of the table of dialogues."""


def _change(pair: Pair) -> str:
    return "" if not pair.change else "green" if pair.change > 0 else "red"


PAIR_COLUMNS = (
    Column("A", lambda pair: outcome(pair.left), "a", drop=3, style=lambda pair: outcome_style(pair.left)),
    Column("B", lambda pair: outcome(pair.right), "b", drop=4, style=lambda pair: outcome_style(pair.right)),
    Column("reward A", lambda pair: pair.left.reward, "reward-a", format_number, drop=5),
    Column("reward B", lambda pair: pair.right.reward, "reward-b", format_number, drop=6),
    Column("change", lambda pair: pair.change, "change", lambda value: f"{value:+.2f}", style=_change),
    Column("turns A", lambda pair: pair.left.turns, "turns-a", _count, drop=1),
    Column("turns B", lambda pair: pair.right.turns, "turns-b", _count, drop=2),
    Column("task", lambda pair: pair.task_id, "order", kind="name"),
    Column("request", lambda pair: pair.left.request, "request", drop=0, kind="prose"),
)
"""The columns of the table of two rollouts."""


def needs_of(rows: Sequence[Any], columns: Sequence[Column] = COLUMNS) -> dict[Column, int]:
    """Return the cells that each column needs for these rows."""
    return {column: column.needs(rows) for column in columns}


@dataclass(frozen=True)
class Layout:
    """The columns that fit, each with its width in cells."""

    columns: tuple[tuple[Column, int], ...]

    @classmethod
    def of(cls, needs: Mapping[Column, int], width: int) -> Layout:
        """Return the layout for a width in cells; one of the columns is a name."""
        kept = [column for column in needs if needs[column] or column.kind == "name"]
        (name,) = (column for column in kept if column.kind == "name")
        wanted = min(max(needs[name], MIN_ID), MAX_ID)
        least = min(wanted, max(MIN_ID, width // 3))
        droppable = [column for column in kept if column.drop is not None]
        rest = width
        for dropped in (None, *sorted(droppable, key=lambda column: column.drop or 0)):
            kept = [column for column in kept if column is not dropped]
            rest = width - sum(needs[column] + GAP for column in kept if column is not name)
            if rest >= least:
                break
        prose = next((column for column in kept if column.kind == "prose"), None)
        widths = {**needs, name: max(rest, 1)}
        if prose is not None and rest > wanted:
            widths |= {name: wanted, prose: needs[prose] + rest - wanted}
        return cls(tuple((column, widths[column]) for column in kept))

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

    def row(self, row: Any) -> Text:
        line = Text(no_wrap=True, end="")
        for column, width in self.columns:
            text = column.text(row)
            shown = beginning(text, width) if column.kind == "prose" else fitted(text, width, right=column.right)
            line.append(shown, column.style(row))
            line.append(" " * GAP)
        return line

    def whole(self, row: Any) -> Iterator[Column]:
        """Yield the columns that show a row's value without truncation."""
        for column, width in self.columns:
            if cell_len(column.text(row)) <= width:
                yield column

    def at(self, cell: int) -> Column | None:
        """Return the column at an offset in cells from the left."""
        for column, width in self.columns:
            if 0 <= cell < width + GAP:
                return column
            cell -= width + GAP
        return None


def beginning(text: str, width: int) -> str:
    """Pad a text to exactly `width` cells, or truncate it at its end with an ellipsis."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


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
