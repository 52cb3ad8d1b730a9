"""The screen of the table of a run's trajectories: filters, order, search, marks."""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from sweet.units import count, percent
from sweet.view.app import filters
from sweet.view.app.choices import ChooseColumns
from sweet.view.app.columns import COLUMNS, Column, outcome
from sweet.view.app.frame import CandidatesAsked, Facts, Keys, attempt, show_message
from sweet.view.app.prompt import Prompt
from sweet.view.app.table_rows import Rows
from sweet.view.bookmarks import Bookmarks
from sweet.view.pairs import Pair, Side
from sweet.view.records import Records, Summary
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.search import Search
from sweet.view.selection import SORT_KEYS, Filter, SortKey, failed, passes, sort_summaries
from sweet.view.terminal import NARROW
from sweet.view.text import printable_line
from sweet.view.viewer import ViewConfig

POLL = 0.1
"""Seconds between two polls of a search."""

LOW = 10
"""Lines of a terminal below which only the rows are shown."""


class TableScreen(Screen[None], inherit_bindings=False):
    """Shows all trajectories that pass the filters, with a cursor."""

    class Filtered(Message):
        """Other trajectories may pass the filters now."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "mark", tooltip="mark or unmark", show=False),
        Binding("a", "mark_all", "mark all", tooltip="mark all that are shown, or unmark them", show=False),
        Binding("w", "where", "where", tooltip="filter by words: outcome=… task=… reward<… fault"),
        Binding("f", "next_failure", "failure", tooltip="next failure"),
        Binding("F", "next_fault", "fault", tooltip="next fault", show=False),
        Binding("s", "side_by_side", "beside", tooltip="two of a task side by side: both marked, or one and this"),
        Binding("d", "app.against", "against", tooltip="beside other rollouts of the run, task by task"),
        Binding("R", "app.rollouts", "rollouts", tooltip="other rollouts of the run", show=False),
        Binding("c", "candidates", "candidates", tooltip="open this dialogue with its candidates", show=False),
        Binding("C", "columns", "columns", tooltip="choose the columns", show=False),
        Binding("o", "outcome", "outcome", tooltip="only one outcome: the next existing one", show=False),
        Binding("t", "task", "task", tooltip="only this dialogue's task, or all again", show=False),
        Binding("B", "bookmarked", "bookmarked", tooltip="only bookmarked ones, or all again", show=False),
        Binding("x,escape", "clear", "clear", tooltip="no filter, no search", show=False),
        Binding("greater_than_sign", "sort(1)", "sort", key_display=">", tooltip="sort by another column", show=False),
        Binding("less_than_sign", "sort(-1)", "sort", key_display="<", tooltip="sort by another column", show=False),
        Binding("r", "reverse", "reverse", tooltip="reverse the order", show=False),
        Binding("q", "app.leave", "quit"),
    ]

    def __init__(
        self, records: Records, bookmarks: Bookmarks, config: ViewConfig, screenshots: RunScreenshots | None
    ) -> None:
        super().__init__()
        self.records, self.bookmarks = records, bookmarks
        self.filter = config.filter()
        self.sort: tuple[SortKey, bool] = (config.sort, config.reverse)
        self.limit, self.hidden, self.screenshots = config.limit, config.hidden, screenshots
        self.problem = ""
        self.marked: set[str] = set()
        self.only_bookmarked = config.bookmarked
        self.searched, self.regex = config.search or "", config.regex
        self.searching: Search | None = None
        self._polls: Timer | None = None
        self._found: set[str] = set()
        self._summaries: list[Summary] = list(records.summaries())

    def compose(self) -> ComposeResult:
        yield Facts(id="head")
        yield Facts(id="where")
        yield Rows()
        yield Static(id="none")
        yield Facts("dim", id="about")
        yield Keys()

    def on_mount(self) -> None:
        self.rows.focus()
        self.rows.measure(self._summaries)
        self.search(self.searched, regex=self.regex)

    def adopt(self, records: Records, bookmarks: Bookmarks, screenshots: RunScreenshots | None) -> None:
        """Show other rollouts. Filters, order and search stay; marks do not.

        Raises:
            SweetError, OSError: they cannot be read; the table is unchanged.
        """
        summaries = list(records.summaries())
        self._stop_search()
        self.records, self.bookmarks, self.screenshots = records, bookmarks, screenshots
        self._summaries, self.marked = summaries, set()
        self.rows.cursor = 0
        self.rows.measure(summaries)
        self.search(self.searched, regex=self.regex)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < NARROW, "-narrow")
        self.set_class(event.size.height < LOW, "-low")

    def on_unmount(self) -> None:
        self._stop_search()

    @property
    def rows(self) -> Rows:
        return self.query_one(Rows)

    @property
    def current(self) -> Summary | None:
        current: Summary | None = self.rows.current
        return current

    @property
    def chosen(self) -> list[Summary]:
        """The marked trajectories, shown or not; without marks the shown ones."""
        if not self.marked:
            return list(self.rows.shown)
        return sort_summaries([summary for summary in self._summaries if summary.id in self.marked], *self.sort)

    def text_to_copy(self) -> str:
        if self.marked:
            return "\n".join(summary.id for summary in self.chosen)
        return self.current.id if self.current else ""

    def find(self, name: str) -> None:
        """Move the cursor to a trajectory if it is shown."""
        position = self.rows.find(name)
        if position is not None:
            self.rows.move_to(position)

    def reload(self) -> None:
        """Read the summaries again and redraw.

        Raises:
            SweetError, OSError: the run cannot be read; the shown rows stay.
        """
        self._summaries = list(self.records.summaries())
        self.rows.measure(self._summaries)
        self._show()

    def _show(self) -> None:
        """Draw everything again. The cursor stays at its trajectory."""
        passing = self.passing
        shown = sort_summaries([summary for summary in self._summaries if passes(summary, passing)], *self.sort)[
            : self.limit
        ]
        rows = self.rows
        rows.sort, rows.marked, rows.bookmarked = self.sort, self.marked, self.bookmarks.notes
        rows.show(shown)
        rows.display = bool(shown)
        if shown and self.focused is None:  # a hidden widget loses the focus
            rows.focus()
        none = self.query_one("#none", Static)
        none.display = not shown
        none.update(Text(self._why_none()))
        self._update_header()
        self._update_filter_line()
        self.post_message(self.Filtered())

    @property
    def passing(self) -> Filter:
        """The filters with what the search has found."""
        return replace(self.filter, ids=self._ids())

    def show_problem(self, problem: str) -> None:
        """Show why the run could not be read at the last check; an empty text removes the message."""
        self.problem = problem
        self._update_header()

    def _ids(self) -> frozenset[str] | None:
        """Return the ids that the search and the bookmarks select; None for all."""
        if not self.only_bookmarked:
            return None if self.searching is None else frozenset(self._found)
        bookmarked = frozenset(self.bookmarks.notes)
        return bookmarked if self.searching is None else bookmarked & self._found

    def _show_marks(self) -> None:
        self.rows.marked = self.marked
        self.rows.refresh()
        self._update_header()

    def _why_none(self) -> str:
        if self._summaries:
            return "Nothing passes the filters; x removes them."
        return "No dialogue yet; they appear here when they end." if self.records.running else "The rollouts are empty."

    def _update_header(self) -> None:
        records, shown, every = self.records, len(self.rows.shown), len(self._summaries)
        total = count(every, "dialogue")
        self.query_one("#head", Facts).set_facts(
            [
                Text(printable_line(records.run.path.name), "bold"),
                records.rollouts.id,
                records.scored,
                total if shown == every else f"{shown:,} of {total}",
                f"{len(self.marked):,} marked" if self.marked else "",
                Text(records.state, "green") if records.running else records.state,
                Text(f"error: {printable_line(self.problem)}", "red") if self.problem else "",
            ]
        )

    def _update_filter_line(self) -> None:
        self.query_one("#where", Facts).set_facts(Text(fact, "cyan") for fact in self.filters_in_words())

    def filters_in_words(self) -> list[str]:
        facts = [filters.describe(self.filter), "bookmarked" if self.only_bookmarked else ""]
        if self.searching is not None:
            pattern = f"/{self.searched}/" if self.regex else f"“{self.searched}”"
            seen = "" if self.searching.done else f", {percent(self.searching.seen)} searched"
            facts.append(f"search {pattern}: {len(self._found):,} found{seen}")
        return [printable_line(fact) for fact in facts if fact]

    def on_rows_moved(self) -> None:
        """Show the values of the current trajectory that the table has no room for."""
        current = self.current
        if current is None:
            self.query_one("#about", Facts).set_facts([])
            return
        note = self.bookmarks.notes.get(current.id)
        tests = f"tests {current.passed}/{current.total}" if current.total else ""
        self.query_one("#about", Facts).set_facts(
            [
                current.id,
                Text(f"★ {printable_line(note)}", "yellow") if note is not None else "",
                tests,
                *self.rows.hidden_values(current),
            ]
        )

    def on_rows_header_clicked(self, event: Rows.HeaderClicked) -> None:
        key, reverse = self.sort
        chosen = next(one for one in SORT_KEYS if one == event.column.sort)
        self._sort_by(chosen, chosen == key and not reverse)

    def on_rows_opened(self) -> None:
        self.open_dialogue()

    def open_dialogue(self, *, unfolded: bool = False) -> None:
        """Open the dialogue under the cursor; `unfolded` shows its candidates."""
        from sweet.view.app.dialogue_screen import DialogueScreen

        rows = self.rows
        hits = {} if self.searching is None else self.searching.hits

        def open_() -> None:
            screen = DialogueScreen(
                self.records, list(rows.shown), rows.cursor, hidden=self.hidden, screenshots=self.screenshots,
                hits=hits, unfolded=unfolded,
            )  # fmt: skip
            self.app.push_screen(screen)

        attempt(self.app, open_)

    def action_candidates(self) -> None:
        current = self.current
        if current is None:
            return
        if current.id in self.records.ranked_ids():
            self.open_dialogue(unfolded=True)
        else:
            self.post_message(CandidatesAsked(current))

    def action_columns(self) -> None:
        def choose(columns: tuple[Column, ...] | None) -> None:
            if columns is not None:
                self.rows.choose(columns)

        self.app.push_screen(ChooseColumns(COLUMNS, self.rows.columns), choose)

    def action_side_by_side(self) -> None:
        from sweet.view.app.side_by_side_screen import SideBySideScreen

        pair = self._pair()
        if pair is None:
            show_message(self.app, "mark one dialogue, or two, of this task to see two side by side")
            return
        attempt(self.app, lambda: self.app.push_screen(SideBySideScreen([pair], 0, self.side, self.side)))

    @property
    def side(self) -> Side:
        """The rollouts of the table, for a comparison."""
        return Side(self.records, self.screenshots)

    def _pair(self) -> Pair | None:
        """Return the two marked trajectories, or the marked and the current one, if they have the same task."""
        chosen = self.chosen if self.marked else []
        current = self.current
        if len(chosen) == 1 and current is not None and current.id != chosen[0].id:
            chosen.append(current)
        if len(chosen) != 2 or chosen[0].task_id != chosen[1].task_id:
            return None
        return Pair(chosen[0], chosen[1])

    def action_mark(self) -> None:
        if self.current is not None:
            self.marked ^= {self.current.id}
            self._show_marks()
            self.rows.action_move(1)

    def action_mark_all(self) -> None:
        shown = {summary.id for summary in self.rows.shown}
        self.marked = self.marked - shown if shown <= self.marked else self.marked | shown
        self._show_marks()

    def action_next_failure(self) -> None:
        self._next(failed, "failure")

    def action_next_fault(self) -> None:
        self._next(lambda summary: bool(summary.fault), "fault")

    def _next(self, wanted: Callable[[Summary], bool], name: str) -> None:
        """Move the cursor to the next matching trajectory, continuing at the top after the last one."""
        rows = self.rows
        others = [*range(rows.cursor + 1, len(rows.shown)), *range(rows.cursor)]
        position = next((index for index in others if wanted(rows.shown[index])), None)
        if position is None:
            show_message(self.app, f"there is no other {name} here")
        else:
            rows.move_to(position)

    def action_where(self) -> None:
        def narrow(line: str | None) -> None:
            if line is not None:
                self._narrow(filters.parse(line))

        def answered(line: str | None) -> None:
            attempt(self.app, lambda: narrow(line))

        self.app.push_screen(Prompt("where", filters.describe(self.filter), filters.EXAMPLE), answered)

    def _narrow(self, filter: Filter) -> None:
        self.filter = filter
        self._show()

    def action_outcome(self) -> None:
        """Filter by the outcome after the current one; after the last one remove the filter."""
        existing = sorted({outcome(summary) for summary in self._summaries})
        now = next(iter(self.filter.outcomes), "") if len(self.filter.outcomes) == 1 else ""
        following = next((name for name in existing if name > now), None)
        self._narrow(replace(self.filter, outcomes=frozenset([following] if following else [])))

    def action_task(self) -> None:
        if self.filter.task is not None:
            self._narrow(replace(self.filter, task=None))
        elif self.current is not None:
            self._narrow(replace(self.filter, task=glob.escape(self.current.task_id)))

    def action_bookmarked(self) -> None:
        self.only_bookmarked = not self.only_bookmarked
        self._show()

    def action_clear(self) -> None:
        self._stop_search()
        self.only_bookmarked = False
        self._narrow(Filter())

    def action_sort(self, step: int) -> None:
        # In the order of the columns, and last the order of the file.
        listed = sorted(COLUMNS, key=lambda column: column.kind == "name")
        keys = [key for column in listed for key in SORT_KEYS if key == column.sort]
        self._sort_by(keys[(keys.index(self.sort[0]) + step) % len(keys)], False)

    def action_reverse(self) -> None:
        key, reverse = self.sort
        self._sort_by(key, not reverse)

    def _sort_by(self, key: SortKey, reverse: bool) -> None:
        self.sort = (key, reverse)
        self._show()

    def search(self, pattern: str, *, regex: bool) -> None:
        """Show only matches of a pattern, as they are found; an empty pattern ends the search."""
        self._stop_search()
        self.searched, self.regex = pattern, regex
        if pattern:
            self.searching = Search(self.records.path, pattern, regex=regex, hidden=self.hidden)
            self._poll_later()
        self._show()

    def _poll_later(self) -> None:
        self._polls = self.set_timer(POLL, self._poll)

    def _poll(self) -> None:
        search = self.searching
        if search is None:
            return
        found = search.poll()
        self._found.update(found)
        if search.error:
            show_message(self.app, search.error, error=True)
            self._stop_search()
            self._show()
            return
        if not search.done:
            self._poll_later()
        if found or search.done:
            self._show()
        else:
            self._update_filter_line()

    def _stop_search(self) -> None:
        if self.searching is not None:
            self.searching.stop()
        if self._polls is not None:
            self._polls.stop()
        self.searching, self._polls, self._found = None, None, set()
