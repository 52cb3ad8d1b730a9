"""The screen of two rollouts: their dialogues in pairs by task, with filters such as "A fails, B solves".

The filters and the search of the table count here too, for the dialogues of A.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from sweet.units import count
from sweet.view.app.columns import PAIR_COLUMNS
from sweet.view.app.frame import Facts, Keys, attempt, show_message
from sweet.view.app.side_by_side_screen import SideBySideScreen
from sweet.view.app.table_rows import Rows
from sweet.view.app.table_screen import TableScreen
from sweet.view.pairs import CHANGES, Change, Pair, Side, pair_up, unpaired
from sweet.view.records import Summary
from sweet.view.selection import passes
from sweet.view.terminal import NARROW

COUNTED: tuple[Change, ...] = ("solved", "lost")
"""The changes whose numbers are at the top."""

_ORDER: dict[str, Callable[[Pair], Any]] = {column.sort: column.value for column in PAIR_COLUMNS}


class ComparisonScreen(Screen[None], inherit_bindings=False):
    """Shows the pairs of two rollouts that pass the filters, with a cursor.

    Args:
        table: the table of A.
        changed: the filter of pairs to begin with; None for all.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "change(1)", "filter", tooltip="the next filter: A fails, B solves; …"),
        Binding("O", "change(-1)", "filter", tooltip="the previous filter", show=False),
        Binding("d", "next_difference", "difference", tooltip="next two with different rewards"),
        Binding("x", "clear", "clear", tooltip="no filter, no search", show=False),
        Binding("greater_than_sign", "sort(1)", "sort", key_display=">", tooltip="sort by another column", show=False),
        Binding("less_than_sign", "sort(-1)", "sort", key_display="<", tooltip="sort by another column", show=False),
        Binding("r", "reverse", "reverse", tooltip="reverse the order", show=False),
        Binding("q,escape", "app.leave", "back"),
    ]

    def __init__(self, table: TableScreen, b: Side, changed: Change | None = None) -> None:
        super().__init__()
        self.table, self.a, self.b, self.changed = table, table.side, b, changed
        self.sort: tuple[str, bool] = ("order", False)
        self._pairs: list[Pair] = []

    def compose(self) -> ComposeResult:
        yield Facts(id="head")
        yield Facts(id="where")
        yield Rows(PAIR_COLUMNS)
        yield Static(id="none")
        yield Facts("dim", id="about")
        yield Keys()

    def on_mount(self) -> None:
        self.set_class(self.size.width < NARROW, "-narrow")
        self.rows.focus()
        self.reload()

    @property
    def rows(self) -> Rows:
        return self.query_one(Rows)

    @property
    def current(self) -> Summary | None:
        """The dialogue of A under the cursor."""
        pair = self.rows.current
        return None if pair is None else pair.left

    def text_to_copy(self) -> str:
        """Return the ids of both dialogues under the cursor."""
        pair: Pair | None = self.rows.current
        return "" if pair is None else f"{pair.left.id}\n{pair.right.id}"

    def reload(self) -> None:
        """Read the summaries again and redraw.

        Raises:
            SweetError, OSError: a run cannot be read; the shown rows stay.
        """
        self.b.records.refresh()
        left, right = self.a.records.summaries(), self.b.records.summaries()
        self._pairs = pair_up(left, right)
        lone = zip(unpaired(self._pairs, left, right), "AB", strict=True)
        counted = (CHANGES[name] for name in COUNTED)
        self.query_one("#head", Facts).set_facts(
            [
                Text("side by side", "bold"),
                f"A {self.a.name}",
                f"B {self.b.name}",
                count(len(self._pairs), "pair"),
                *(f"{number:,} only in {name}" for number, name in lone if number),
                *(f"{words}: {sum(map(changes, self._pairs)):,}" for words, changes in counted),
            ]
        )
        self.rows.measure(self._pairs)
        self.narrow()

    def narrow(self) -> None:
        """Draw the pairs that pass the filters."""
        changes = (lambda _: True) if self.changed is None else CHANGES[self.changed][1]
        passing = self.table.passing
        shown = [pair for pair in self._pairs if changes(pair) and passes(pair.left, passing)]
        key, reverse = self.sort
        if key == "order":
            shown = shown[::-1] if reverse else shown
        else:
            known = [pair for pair in shown if _ORDER[key](pair) is not None]
            unknown = [pair for pair in shown if _ORDER[key](pair) is None]
            shown = [*sorted(known, key=_ORDER[key], reverse=reverse), *unknown]
        self.rows.sort = self.sort
        self.rows.show(shown)
        self.rows.display = bool(shown)
        none = self.query_one("#none", Static)
        none.display = not shown
        none.update(Text("No two pass the filter; x removes it." if self._pairs else "The two have no task in common."))
        words = self.table.filters_in_words()
        if self.changed is not None:
            words.insert(0, CHANGES[self.changed][0])
        if words:
            words.append(f"{len(shown):,} of {len(self._pairs):,}")
        self.query_one("#where", Facts).set_facts(Text(word, "cyan") for word in words)

    def on_rows_moved(self) -> None:
        """Show the values of the current pair that the table has no room for."""
        pair: Pair | None = self.rows.current
        facts: list[str | Text] = [] if pair is None else [pair.task_id, *self.rows.hidden_values(pair)]
        self.query_one("#about", Facts).set_facts(facts)

    def on_rows_header_clicked(self, event: Rows.HeaderClicked) -> None:
        key, reverse = self.sort
        self._sort_by(event.column.sort, event.column.sort == key and not reverse)

    def on_rows_opened(self) -> None:
        rows = self.rows
        attempt(
            self.app,
            lambda: self.app.push_screen(SideBySideScreen(list(rows.shown), rows.cursor, self.a, self.b)),
        )

    def action_change(self, step: int) -> None:
        """Apply the next filter; after the last one show all pairs."""
        choices: list[Change | None] = [None, *CHANGES]
        self.changed = choices[(choices.index(self.changed) + step) % len(choices)]
        self.narrow()

    def action_clear(self) -> None:
        self.changed = None
        self.table.action_clear()

    def action_next_difference(self) -> None:
        rows = self.rows
        others = [*range(rows.cursor + 1, len(rows.shown)), *range(rows.cursor)]
        position = next((index for index in others if rows.shown[index].change), None)
        if position is None:
            show_message(self.app, "no other two have different rewards here")
        else:
            rows.move_to(position)

    def action_sort(self, step: int) -> None:
        keys = list(_ORDER)
        self._sort_by(keys[(keys.index(self.sort[0]) + step) % len(keys)], False)

    def action_reverse(self) -> None:
        key, reverse = self.sort
        self._sort_by(key, not reverse)

    def _sort_by(self, key: str, reverse: bool) -> None:
        self.sort = (key, reverse)
        self.narrow()
