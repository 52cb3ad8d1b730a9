"""The screen of the table: the dialogues of a rollout, or pairs with those of another; filters, order, search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import get_current_worker

from sweet.errors import SweetError, UsageError
from sweet.units import count
from sweet.view.app.dialogue_screen import DialogueScreen
from sweet.view.app.frame import Facts, Keys, Prompt, show_message
from sweet.view.app.table_rows import Rows
from sweet.view.pairs import CHANGES, Pair, left_of
from sweet.view.records import Summary
from sweet.view.selection import EXAMPLE, Filter, describe, failed, parse, passes, search
from sweet.view.table import outcome, sort_rows
from sweet.view.text import NARROW, printable_line
from sweet.view.viewer import Viewer

LOW = 10
"""Lines of a terminal below which only the rows are shown."""
COUNTED = ("solved", "lost")
"""The changes whose numbers are at the top of a comparison."""


class TableScreen(Screen[None], inherit_bindings=False):
    """Shows all rows that pass the filters, with a cursor.

    Attributes:
        found: ids of the dialogues that the search has found; None until it ends.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/", tooltip="search dialogues and code, and filter by words"),
        Binding("o", "outcome", "outcome", tooltip="only one outcome, or change: the next existing one"),
        Binding("x,escape", "clear", "clear", tooltip="no filter, no search", show=False),
        Binding("f", "next_failure", "failure", tooltip="next failure"),
        Binding("s", "app.beside", "beside", tooltip="beside the next dialogue of the task"),
        Binding("R", "read_again", "read again", tooltip="read the rollouts again", show=False),
        Binding("greater_than_sign", "sort(1)", "sort", key_display=">", tooltip="sort by another column", show=False),
        Binding("less_than_sign", "sort(-1)", "sort", key_display="<", tooltip="sort by another column", show=False),
        Binding("r", "reverse", "reverse", tooltip="reverse the order", show=False),
        Binding("q", "app.leave", "quit"),
    ]

    @dataclass
    class Searched(Message):
        """A search has ended."""

        text: str
        found: frozenset[str]
        problem: str = ""

    def __init__(self, viewer: Viewer) -> None:
        super().__init__()
        self.viewer = viewer
        self.filter = parse(viewer.config.filter)
        self.sort: tuple[str, bool] = (viewer.config.sort if viewer.b is None else "order", viewer.config.reverse)
        self.found: frozenset[str] | None = None
        self._all = viewer.rows()

    def compose(self) -> ComposeResult:
        yield Facts(id="head")
        yield Facts(id="where")
        yield Rows()
        yield Static(id="none")
        yield Facts("dim", id="about")
        yield Keys()

    def on_mount(self) -> None:
        self.rows.focus()
        self._read()

    def _read(self) -> None:
        self._all = self.viewer.rows()
        self.rows.measure(self._all, self.viewer.columns)
        self._show()
        self._begin_search()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < NARROW, "-narrow")
        self.set_class(event.size.height < LOW, "-low")

    @property
    def rows(self) -> Rows:
        return self.query_one(Rows)

    @property
    def current(self) -> Summary | None:
        row = self.rows.current
        return None if row is None else left_of(row)

    def move_to(self, name: str) -> None:
        """Move the cursor to a dialogue if it is shown."""
        position = self.rows.find(name)
        if position is not None:
            self.rows.move_to(position)

    def _show(self) -> None:
        """Draw everything again. The cursor stays at its row."""
        passing = [row for row in self._all if passes(row, self.filter)]
        if self.filter.text:
            passing = [row for row in passing if row.id in (self.found or ())]
        rows = self.rows
        rows.sort = self.sort
        rows.show(sort_rows(passing, self.viewer.columns, *self.sort)[: self.viewer.config.limit])
        rows.display = bool(rows.shown)
        if rows.shown and self.focused is None:  # a hidden widget loses the focus
            rows.focus()
        none = self.query_one("#none", Static)
        none.display = not rows.shown
        none.update(Text(self._why_none()))
        self._show_facts()

    def _why_none(self) -> str:
        if self._all and self.filter.text and self.found is None:
            return "The dialogues are searched."
        if self._all:
            return "Nothing passes the filters; x removes them."
        running = any(side.records.running for side in self.viewer.sides)
        if self.viewer.b is not None:
            return f"The two have no task in common{'; R reads them again' if running else ''}."
        return "No dialogue has ended yet; R reads them again." if running else "The rollouts are empty."

    def _show_facts(self) -> None:
        records, shown, every = self.viewer.records, len(self.rows.shown), len(self._all)
        facts: list[str | Text]
        if self.viewer.b is None:
            state = Text(records.state, "green" if records.running else "")
            facts = [Text(printable_line(records.run.name), "bold"), records.rollouts.id, state]
        else:
            facts = [Text("side by side", "bold"), f"A {self.viewer.a.name}", f"B {self.viewer.b.name}"]
        total = count(every, "dialogue" if self.viewer.b is None else "pair")
        facts.append(total if shown == every else f"{shown:,} of {total}")
        if self.viewer.b is not None:
            sides = (len(side.records.summaries()) for side in self.viewer.sides)
            facts += [
                f"{alone - every:,} only in {name}" for name, alone in zip("AB", sides, strict=True) if alone > every
            ]
            compared = [row for row in self._all if isinstance(row, Pair) and row.change is not None]
            counted = map(CHANGES.__getitem__, COUNTED) if compared else ()
            facts += [f"{words}: {sum(map(changed, compared)):,}" for words, changed in counted]
        self.query_one("#head", Facts).set_facts(facts)
        where = [describe(replace(self.filter, text=""))]
        if self.filter.text:
            matches = "…" if self.found is None else f"{len(self.found):,} found"
            where.append(f"search “{self.filter.text}”: {matches}")
        self.query_one("#where", Facts).set_facts(Text(printable_line(fact), "cyan") for fact in where if fact)

    def on_rows_moved(self) -> None:
        """Show the values of the current row that the table has no room for."""
        row = self.rows.current
        names = "" if row is None else row.id if isinstance(row, Summary) else row.task_id
        hidden = [] if row is None else self.rows.hidden_values(row)
        self.query_one("#about", Facts).set_facts([names, *hidden])

    # Moving

    def action_open(self) -> None:
        rows, viewer, hidden = self.rows, self.viewer, self.viewer.config.hidden
        if rows.shown:
            opened = DialogueScreen(rows.shown, rows.cursor, viewer.a, viewer.b, hidden=hidden, hit=self.filter.text)
            self.app.push_screen(opened)

    def action_next_failure(self) -> None:
        """Move the cursor to the next failure, continuing at the top after the last one."""
        rows = self.rows
        positions = [*range(rows.cursor + 1, len(rows.shown)), *range(rows.cursor)]
        position = next((index for index in positions if failed(left_of(rows.shown[index]))), None)
        if position is None:
            show_message(self.app, "there is no other failure here")
        else:
            rows.move_to(position)

    def action_read_again(self) -> None:
        """Show the rollouts as they are now; a stage may be writing them."""
        self.viewer.read_again()
        self._read()

    # Filters and order

    def action_search(self) -> None:
        def answered(line: str | None) -> None:
            if line is not None:
                try:
                    self.narrow(parse(line))
                except UsageError as error:
                    show_message(self.app, str(error), error=True)

        self.app.push_screen(Prompt("search", describe(self.filter), EXAMPLE), answered)

    def narrow(self, filter: Filter) -> None:
        """Show what passes this filter."""
        text = self.filter.text
        self.filter = filter
        if filter.text != text:
            self._begin_search()
        self._show()

    def action_outcome(self) -> None:
        """Filter by the outcome, or change of pairs, after the current one; after the last one remove the filter."""
        name, choices = "change=", list(CHANGES)
        if self.viewer.b is None:
            name, choices = "outcome=", sorted({outcome(row) for row in self._all if isinstance(row, Summary)})
        conditions = dict(self.filter.conditions)
        now = conditions.pop(name, "")
        for following in choices[choices.index(now) + 1 if now in choices else 0 :][:1]:
            conditions[name] = following
        self.narrow(replace(self.filter, conditions=conditions))

    def action_clear(self) -> None:
        self.narrow(Filter())

    def action_sort(self, step: int) -> None:
        # In the order of the columns, and last the order of the file.
        keys = [column.sort for column in sorted(self.viewer.columns, key=lambda column: column.kind == "name")]
        self.sort = keys[(keys.index(self.sort[0]) + step) % len(keys)], False
        self._show()

    def action_reverse(self) -> None:
        key, reverse = self.sort
        self.sort = key, not reverse
        self._show()

    # Searching

    def _begin_search(self) -> None:
        """Search in a thread; a search that runs ends."""
        self.found = None
        self.workers.cancel_node(self)
        if self.filter.text:
            self._search(self.filter.text)

    @work(thread=True)
    def _search(self, text: str) -> None:
        ids: set[str] = set()
        worker, problem, records = get_current_worker(), "", self.viewer.records
        try:
            if self._all:
                hidden = self.viewer.config.hidden
                for name in search(records.path, text, hidden=hidden, stopped=lambda: worker.is_cancelled):
                    ids.add(name)
        except SweetError as error:
            problem = str(error)
        if not worker.is_cancelled:
            self.post_message(self.Searched(text, frozenset(ids), problem))

    def on_table_screen_searched(self, event: Searched) -> None:
        if event.text == self.filter.text:
            self.found = event.found
            if event.problem:
                show_message(self.app, event.problem, error=True)
            self._show()
