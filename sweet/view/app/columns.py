"""The columns of the table: what each shows, how wide it is, and which of them fit.

A column in which no row has anything to say is left out. The trajectory's id takes what the others leave; where that is
too little the columns that matter least go first. An id that is cut keeps most of its end: ids of a run begin alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sweet.view.records import Summary
from sweet.view.selection import SortKey
from sweet.view.terminal import STYLES, figure
from sweet.view.text import printable_line

GAP = 2
LEAST = 14
"""Cells that the id must have before another column has any."""
MOST = 64
"""Cells of an id, however long."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: at its head, and in the list of keys.
        value: what it shows of a trajectory; None where that is not known.
        sort: the key of `sweet.view.selection` that orders by it.
        shown: the value as text; what models or files wrote is made printable when it is drawn.
    """

    title: str
    value: Callable[[Summary], str | float | None]
    sort: SortKey
    shown: Callable[[float], str] | None = None

    @property
    def right(self) -> bool:
        """Whether it holds figures, which stand below each other."""
        return self.shown is not None

    def text(self, summary: Summary) -> str:
        value = self.value(summary)
        if self.shown is not None:
            return figure(None) if value is None else self.shown(float(value))
        return printable_line(str(value or ""))

    def needs(self, summaries: Sequence[Summary]) -> int:
        """The cells that every row fits into; 0 where none has anything to say."""
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
    """Cells of the widest; where nothing but ASCII is seen, as nearly always, in a moment."""
    every = "".join(texts)
    if every.isascii() and every.isprintable():
        return max(map(len, texts))
    return max(cell_len(printable_line(text)) for text in texts)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def outcome(summary: Summary) -> str:
    """How the answer scored; how the dialogue ended where nobody scored it."""
    return summary.outcome or summary.ended


def _other_task(summary: Summary) -> str:
    """The task, where the id does not tell it."""
    return "" if summary.id.startswith(summary.task_id) else summary.task_id


OUTCOME = Column("outcome", outcome, "outcome")
TRAJECTORY = Column("trajectory", lambda summary: summary.id, "order")
COLUMNS = (
    OUTCOME,
    Column("reward", lambda summary: summary.reward, "reward", figure),
    Column("turns", lambda summary: summary.turns, "turns", _count),
    Column("tokens", lambda summary: summary.tokens, "tokens", _count),
    Column("seconds", lambda summary: summary.seconds, "seconds", _tenths),
    Column("fault", lambda summary: "" if summary.fault == outcome(summary) else summary.fault, "fault"),
    Column("task", _other_task, "task"),
    TRAJECTORY,
)
FIRST_TO_GO = ("task", "seconds", "tokens", "turns", "fault", "reward")
"""Titles of the columns that a narrow terminal does without, in this order."""


def needs_of(summaries: Sequence[Summary]) -> dict[Column, int]:
    """The cells that each column needs for all of them."""
    return {column: column.needs(summaries) for column in COLUMNS}


@dataclass(frozen=True)
class Layout:
    """The columns that fit, each with its cells."""

    columns: tuple[tuple[Column, int], ...]

    @classmethod
    def of(cls, needs: Mapping[Column, int], width: int) -> Layout:
        """The layout for so many cells."""
        kept = [column for column in COLUMNS if needs[column] or column is TRAJECTORY]
        wanted = min(max(needs[TRAJECTORY], LEAST), MOST)
        rest = width
        for title in ("", *FIRST_TO_GO):
            kept = [column for column in kept if column.title != title]
            rest = width - sum(needs[column] + GAP for column in kept if column is not TRAJECTORY)
            if rest >= min(wanted, max(LEAST, width // 3)):
                break
        return cls(tuple((column, max(rest, 1) if column is TRAJECTORY else needs[column]) for column in kept))

    def header(self, sort: str, reverse: bool) -> Text:
        """The titles; an arrow stands at the column that the rows are sorted by."""
        arrow = "▼" if reverse else "▲"
        if (sort, reverse) == ("order", False):
            sort = ""  # the file's order is nobody's wish
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
        """The columns in which everything of a trajectory is seen."""
        for column, width in self.columns:
            if cell_len(column.text(summary)) <= width:
                yield column

    def at(self, cell: int) -> Column | None:
        """The column at so many cells from the left."""
        for column, width in self.columns:
            if 0 <= cell < width + GAP:
                return column
            cell -= width + GAP
        return None


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """A text in exactly so many cells: filled with blanks, or with an ellipsis nearer to its beginning."""
    length = cell_len(text)
    if length <= width:
        return " " * (width - length) + text if right else text + " " * (width - length)
    behind = (width - 1) * 2 // 3
    ending = text[len(text) - behind :]
    while cell_len(ending) > behind:
        ending = ending[1:]
    return set_cell_size(text, width - 1 - cell_len(ending)) + "…" + ending
