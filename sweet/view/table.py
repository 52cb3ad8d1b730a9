"""The table of dialogues, and of pairs of two: its columns, which of them fit a width, and the table that is printed.

A column without any value is omitted. The name of a row, the dialogue's id, gets the width that the other columns
leave, or shares it with a column of prose, the request; if that is too little, the least important columns are dropped
first. A truncated id keeps most of its end, because the ids of a run have the same beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from sweet.view.pairs import Row
from sweet.view.records import Summary
from sweet.view.text import NARROW, STYLES, printable_line, tests_passed

GAP = 2
MIN_ID = 14
"""Cells that the id gets before any other column."""
MAX_ID = 64
"""Most cells of an id."""
MIN_PROSE = 24
"""Cells below which a column of prose is dropped."""

SortKey = Literal["order", "reward", "tests", "turns", "tokens", "seconds", "outcome", "task", "fault", "request"]
"""The keys to sort dialogues by; `order` is the order of the file."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: shown in the header.
        sort: its name as a key to sort by.
        value: returns its value for a row, by which rows are sorted; None if unknown.
        text: returns what is shown; by default the value.
        right: it contains numbers, which are right-aligned.
        drop: on a narrow terminal the columns with the lowest numbers are dropped first; None is never dropped.
        kind: `name` identifies the row, and `prose` begins with what matters; both take the width that is left.
        style: returns the style of its text.
    """

    title: str
    sort: str
    value: Callable[[Any], Any]
    text: Callable[[Any], str] | None = None
    right: bool = False
    drop: int | None = None
    kind: Literal["value", "name", "prose"] = "value"
    style: Callable[[Any], str] = lambda _: ""

    def shown(self, row: Row) -> str:
        """Return the text of a row, safe for a terminal."""
        return printable_line(str(self.value(row) or "") if self.text is None else self.text(row))

    def needs(self, rows: Sequence[Row]) -> int:
        """Return the cells that the column needs for these rows; 0 if it has nothing to show."""
        if not any(self.value(row) not in (None, "") for row in rows):
            return 0
        widest = max(cell_len(self.shown(row)) for row in rows)
        return MIN_PROSE if self.kind == "prose" else max(cell_len(self.title) + 1, widest) if widest else 0


def _number(
    title: str, value: Callable[[Any], float | None], drop: int, form: str = ",.0f", sort: str = "", **more: Any
) -> Column:
    """Return a column of numbers, with a dash where one is unknown."""

    def text(row: Row) -> str:
        number = value(row)
        return "–" if number is None else f"{number:{form}}"

    return Column(title, sort or title, value, text, right=True, drop=drop, **more)


def outcome(summary: Summary) -> str:
    """Return how the answer scored, or how the dialogue ended if it was not scored."""
    return summary.outcome or summary.ended


def outcome_style(summary: Summary) -> str:
    return STYLES.get(outcome(summary), "")


NAME = Column("dialogue", "order", lambda row: row.id, kind="name")
COLUMNS = (
    Column("outcome", "outcome", outcome, style=outcome_style),
    _number("reward", lambda row: row.reward, 7, ".2f"),
    Column(
        "tests", "tests", lambda row: row.passed if row.total else None,
        lambda row: tests_passed(row.passed, row.total), right=True, drop=5,
    ),
    _number("turns", lambda row: row.turns, 4),
    _number("tokens", lambda row: row.tokens, 3),
    _number("seconds", lambda row: row.seconds, 2, ",.1f"),
    Column(
        "fault", "fault", lambda row: row.fault or None,
        lambda row: "" if row.fault == outcome(row) else row.fault, drop=6, style=lambda _: "yellow",
    ),
    Column(
        "task", "task", lambda row: row.task_id,
        lambda row: "" if row.id.startswith(row.task_id) else row.task_id, drop=1,
    ),
    NAME,
    Column("request", "request", lambda row: row.request or None, drop=0, kind="prose"),
)  # fmt: skip
"""The columns of the table of dialogues."""

PAIR_COLUMNS = (
    Column("A", "a", lambda row: outcome(row.left), drop=3, style=lambda row: outcome_style(row.left)),
    Column("B", "b", lambda row: outcome(row.right), drop=4, style=lambda row: outcome_style(row.right)),
    _number("reward A", lambda row: row.left.reward, 5, ".2f", "reward-a"),
    _number("reward B", lambda row: row.right.reward, 6, ".2f", "reward-b"),
    _number(
        "change", lambda row: row.change, 7, "+.2f",
        style=lambda row: "" if not row.change else "green" if row.change > 0 else "red",
    ),
    _number("turns A", lambda row: row.left.turns, 1, sort="turns-a"),
    _number("turns B", lambda row: row.right.turns, 2, sort="turns-b"),
    Column("task", "order", lambda row: row.task_id, kind="name"),
    Column("request", "request", lambda row: row.left.request or None, drop=0, kind="prose"),
)  # fmt: skip
"""The columns of the table of pairs."""


def sort_rows(rows: Sequence[Row], columns: Sequence[Column], key: str, reverse: bool = False) -> list[Row]:
    """Return sorted rows. Those without a value come last in both directions."""
    if key == "order":
        return list(reversed(rows)) if reverse else list(rows)
    value = next(column.value for column in columns if column.sort == key)
    with_value = [row for row in rows if value(row) is not None]
    return [*sorted(with_value, key=value, reverse=reverse), *(row for row in rows if value(row) is None)]


def needs_of(rows: Sequence[Row], columns: Sequence[Column] = COLUMNS) -> dict[Column, int]:
    """Return the cells that each column needs for these rows."""
    return {column: column.needs(rows) for column in columns}


@dataclass(frozen=True)
class Layout:
    """The columns that fit, each with its width in cells."""

    columns: tuple[tuple[Column, int], ...]

    @classmethod
    def of(cls, needs: Mapping[Column, int], width: int) -> Layout:
        """Return the layout for a width in cells; one of the columns is a name."""
        fitting = [column for column in needs if needs[column] or column.kind == "name"]
        (name,) = (column for column in fitting if column.kind == "name")
        wanted = min(max(needs[name], MIN_ID), MAX_ID)
        least = min(wanted, max(MIN_ID, width // 3))
        droppable = [column for column in fitting if column.drop is not None]
        name_width = width
        for dropped in (None, *sorted(droppable, key=lambda column: column.drop or 0)):
            fitting = [column for column in fitting if column is not dropped]
            name_width = width - sum(needs[column] + GAP for column in fitting if column is not name)
            if name_width >= least:
                break
        prose = next((column for column in fitting if column.kind == "prose"), None)
        widths = {**needs, name: max(name_width, 1)}
        if prose is not None and name_width > wanted:
            widths |= {name: wanted, prose: needs[prose] + name_width - wanted}
        return cls(tuple((column, widths[column]) for column in fitting))

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

    def row(self, row: Row) -> Text:
        line = Text(no_wrap=True, end="")
        for column, width in self.columns:
            text = column.shown(row)
            cell = beginning(text, width) if column.kind == "prose" else fitted(text, width, right=column.right)
            line.append(cell, column.style(row))
            line.append(" " * GAP)
        return line

    def whole(self, row: Row) -> Iterator[Column]:
        """Yield the columns that show a row's value without truncation."""
        for column, width in self.columns:
            if cell_len(column.shown(row)) <= width:
                yield column


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


@dataclass(frozen=True)
class PrintedTable:
    """The table on stdout: ids are never cut, and on a narrow terminal only the most important columns are shown."""

    rows: Sequence[Row]
    columns: Sequence[Column]
    title: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needs = needs_of(self.rows, self.columns)
        least = 0 if options.max_width >= NARROW else 5
        table = Table("#")
        table.columns[0].justify = "right"
        visible = [c for c in self.columns if c.kind == "name" or (needs[c] and c.kind != "prose")]
        visible = [c for c in visible if c.drop is None or c.drop > least]
        for column in visible:
            table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
        for number, row in enumerate(self.rows, 1):
            table.add_row(str(number), *(Text(column.shown(row), column.style(row)) for column in visible))
        yield Text(printable_line(self.title), style="italic")
        yield table
        if self.caption:
            yield Text(printable_line(self.caption), style="dim italic")
