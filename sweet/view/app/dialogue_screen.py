"""The screen of one dialogue, or of two of a task side by side, with keys to the others of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sweet.view.app.frame import Facts, Keys, show_message
from sweet.view.app.parts_view import RANKED, THOUGHTS, PartsView
from sweet.view.dialogue_view import dialogue_parts, headline
from sweet.view.pairs import Pair, Row, Side, left_of
from sweet.view.parts import Part
from sweet.view.records import Record, Summary
from sweet.view.selection import failed
from sweet.view.side_by_side import side_by_side_parts


class DialogueScreen(Screen[None]):
    """Shows a row of the table as a dialogue, or a pair as two.

    Args:
        shown: the rows that n and p step through, starting at `position`.
        a, b: the rollouts of dialogues, and of the right ones of pairs.
        hidden: show the hidden information.
        hit: a text to mark.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "jump(1)", "turn", key_display="]", tooltip="next turn"),
        Binding("left_square_bracket", "jump(-1)", "turn", key_display="[", tooltip="previous turn", show=False),
        Binding("n", "walk(1)", "next", tooltip="next dialogue, or the next two"),
        Binding("p", "walk(-1)", "previous", tooltip="previous dialogue, or the previous two"),
        Binding("d", "next_difference", "difference", tooltip="next difference, also in the next two"),
        Binding("f", "next_failure", "failure", tooltip="next failure"),
        Binding("h", "hidden", "hidden", tooltip="information that is hidden from the agent"),
        Binding("c", "fold", "candidates", tooltip="candidates and pairs of all turns"),
        Binding("t", "fold_thoughts", "thoughts", tooltip="thoughts and calls of tools of all turns", show=False),
        Binding("enter", "fold_here", "candidates", tooltip="thought, candidates and pairs of this turn", show=False),
        Binding("s", "app.beside", "beside", tooltip="beside the next dialogue of the task"),
        Binding("i", "pictures", "pictures", tooltip="pictures whole, or their beginning"),
    ]
    ONLY_ONE = frozenset({"next_failure", "hidden", "fold", "fold_thoughts", "fold_here"})
    """Actions on one dialogue; `next_difference` is one on two."""

    def __init__(
        self,
        shown: Sequence[Row],
        position: int,
        a: Side,
        b: Side | None = None,
        *,
        hidden: bool = False,
        hit: str = "",
    ) -> None:
        super().__init__()
        self.shown, self.position = list(shown), position
        self.a, self.b = a, b or a
        self.options = replace(a.options, hidden=hidden)
        self.view = PartsView()
        self.view.hit = hit
        self.records = self._read(self.row)
        self._before_hidden = 0

    def compose(self) -> ComposeResult:
        yield Facts()
        yield self.view
        yield Keys()

    async def on_mount(self) -> None:
        self.view.focus()
        await self.redraw()

    @property
    def row(self) -> Row:
        return self.shown[self.position]

    @property
    def current(self) -> Summary:
        """The dialogue that is shown, or that of A."""
        return left_of(self.row)

    def _read(self, row: Row) -> tuple[Record, ...]:
        if isinstance(row, Pair):
            return self.a.records.record(row.left), self.b.records.record(row.right)
        return (self.a.records.record(row),)

    def _facts(self) -> list[str | Text]:
        position = f"{self.position + 1:,} of {len(self.shown):,}"
        if not isinstance(self.row, Pair):
            return [Text(position, "bold"), *headline(self.records[0])]
        sides = [] if self.a == self.b else [f"A {self.a.name}", f"B {self.b.name}"]
        several = position if len(self.shown) > 1 else ""
        return [Text("side by side", "bold"), several, f"task {self.current.task_id}", *sides]

    def _parts(self) -> list[Part]:
        if len(self.records) == 2:
            return side_by_side_parts(*self.records, self.options, self.b.options.screenshots)
        return dialogue_parts(self.records[0], self.options)

    async def redraw(self, *, stay: bool = False, at: str = "") -> None:
        """Draw everything again. `stay` and `at` choose the scroll position; see `PartsView.show`."""
        self.query_one(Facts).set_facts(self._facts())
        self.refresh_bindings()
        await self.view.show(self._parts(), stay=stay, at=at)

    async def _go(self, position: int | None, missing: str) -> None:
        if position is None or not 0 <= position < len(self.shown):
            show_message(self.app, missing)
            return
        self.records = self._read(self.shown[position])
        self.position = position
        await self.redraw()

    async def action_walk(self, step: int) -> None:
        await self._go(self.position + step, "this is the last one" if step > 0 else "this is the first one")

    async def action_next_failure(self) -> None:
        following = range(self.position + 1, len(self.shown))
        failures = (position for position in following if failed(left_of(self.shown[position])))
        await self._go(next(failures, None), "no further failure")

    async def action_next_difference(self) -> None:
        """Scroll to the next difference; after the last one show the next two."""
        if not self.view.next_difference():
            await self._go(self.position + 1, "no further difference")

    async def action_hidden(self) -> None:
        """Show the hidden information and move to it, or hide it and move back."""
        revealed = not self.options.hidden
        self.options = replace(self.options, hidden=revealed)
        if revealed:
            self._before_hidden = self.view.scroll_offset.y
            await self.redraw(stay=True, at="hidden")
        else:
            await self.redraw(stay=True)
            self.view.call_after_refresh(self.view.scroll_to, y=self._before_hidden, animate=False)
        show_message(self.app, "h returns" if revealed else "hidden information is hidden")

    async def action_pictures(self) -> None:
        self.view.whole_pictures = not self.view.whole_pictures
        await self.redraw(stay=True)

    def action_fold(self) -> None:
        if self.view.has(RANKED):
            self.view.fold(RANKED)
        else:
            show_message(self.app, self.a.records.why_no_candidates())

    def action_fold_thoughts(self) -> None:
        self.view.fold(THOUGHTS)

    def action_fold_here(self) -> None:
        self.view.fold_here()

    def action_jump(self, step: int) -> None:
        if not self.view.jump(step):
            show_message(self.app, "this is the last turn" if step > 0 else "this is the first turn")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "pictures":
            return self.options.screenshots is not None and self.options.screenshots.draw
        two = len(self.records) == 2
        return not (two and action in self.ONLY_ONE) and (two or action != "next_difference")
