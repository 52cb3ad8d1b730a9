"""A scrolled view of parts that are drawn when they come into sight.

Of a part that was not seen yet only the height is guessed, from its length; a long dialogue opens as fast as a short
one. The view is a list of rows: a part's heading, a body that was not opened, or a block of it. What is in sight is
drawn, and where the true height is not the guessed one everything else moves, but not the line that is looked at.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rich.console import Console, RenderableType
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sweet.view.parts import Block, Part

FOLDED, OPEN = "▸ ", "▾ "
FOLDABLE = frozenset({"candidates", "pairs"})
STOPS = frozenset({"agent", "answer"})
"""Parts from one of which to the next one jumps."""

Key = tuple[str, int | None]


@dataclass(eq=False)
class Row:
    """Some lines of the view.

    Attributes:
        block: of the part's body; None for its heading, or for a body that was not opened.
        height: guessed until the strips are there.
    """

    part: Part
    heading: bool
    block: Block | None = None
    height: int = 1
    strips: list[Strip] | None = None

    @property
    def key(self) -> Key:
        return (self.part.kind, self.part.turn)

    @property
    def unopened(self) -> bool:
        return not self.heading and self.block is None


class PartsView(ScrollView, can_focus=True):
    """Parts, one below the other; `candidates` and `pairs` are folded until they are asked for."""

    DEFAULT_CSS = "PartsView { height: 1fr; overflow-x: hidden; overflow-y: scroll; padding: 0 0 0 1; }"
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._parts: Sequence[Part] = ()
        self._rows: list[Row] = []
        self._starts: list[int] = [0]
        self._folded = set(FOLDABLE)
        self._turned: set[Key] = set()
        self._drawing_width = 0
        self._settling = False

    # What is shown

    def show(self, parts: Sequence[Part], *, stay: bool = False) -> None:
        """Show these instead; `stay` keeps the part that is looked at where it is, if it is still there."""
        place = self._place() if stay else None
        self._parts = parts
        self._build(place)

    def fold(self) -> None:
        """Fold all that can be folded, or open it where all of it is folded."""
        everything = {row.key for row in self._rows if self._folds(row)}
        opened = any(not self._is_folded(key) for key in everything)
        self._folded = set(FOLDABLE) if opened else set()
        self._turned.clear()
        self._build(self._place())

    def fold_here(self) -> None:
        """Fold or open what belongs to the first turn in sight that has anything to fold."""
        turn = next((row.part.turn for row in self._in_sight() if self._folds(row)), None)
        keys = {row.key for row in self._rows if self._folds(row) and row.part.turn == turn}
        opened = any(not self._is_folded(key) for key in keys)
        self._turned ^= {key for key in keys if self._is_folded(key) != opened}
        self._build(self._place())

    @staticmethod
    def _folds(row: Row) -> bool:
        return row.heading and row.part.kind in FOLDABLE

    def _is_folded(self, key: Key) -> bool:
        return (key[0] in self._folded) != (key in self._turned)

    def jump(self, step: int) -> bool:
        """To the next turn of the agent, or the one before; False where there is none."""
        here = round(self.scroll_y)
        rows = [row for row in self._placed() if row[0].heading and row[0].part.kind in STOPS]
        if step > 0:
            further = [row.key for row, start in rows if start > here]
        else:
            further = [row.key for row, start in reversed(rows) if start < here]
        if not further or (step > 0 and here >= self.max_scroll_y):
            return False
        self._go_to(further[0])
        return True

    # Rows

    def _build(self, place: tuple[Key, int] | None) -> None:
        """Make the rows anew and go to a place."""
        self._rows = []
        for part in self._parts:
            folded = part.kind in FOLDABLE and self._is_folded((part.kind, part.turn))
            if part.title:
                self._rows.append(Row(part, heading=True, height=1 if part.inner else 2))
            if not folded:
                self._rows.append(Row(part, heading=False, height=self._guess(part.characters, 1)))
        self._measure()
        if place is None or place[0] not in {row.key for row in self._rows}:
            self.action_scroll_home()
        else:
            self._go_to(*place)
        self.refresh()

    def _guess(self, characters: int, lines: int) -> int:
        return max(lines, 1) + characters // max(self._width - 4, 10)

    @property
    def _width(self) -> int:
        """Columns of text; one is left free before the scroll bar."""
        return max(self.scrollable_content_region.width - 1, 0)

    def _measure(self) -> None:
        """Where each row begins, from the heights that are known."""
        self._starts = [0, *accumulate(row.height for row in self._rows)]
        self.virtual_size = Size(self._width, self._starts[-1])

    def _index_at(self, y: int) -> int:
        return min(max(bisect_right(self._starts, y) - 1, 0), len(self._rows) - 1)

    def _row_at(self, y: int) -> Row:
        return self._rows[self._index_at(y)]

    def _placed(self) -> list[tuple[Row, int]]:
        """The rows and where they begin."""
        return list(zip(self._rows, self._starts, strict=False))

    def _start(self, key: Key) -> int:
        return next((start for row, start in self._placed() if row.key == key), 0)

    def _place(self) -> tuple[Key, int] | None:
        """The part at the upper edge, and how many lines of it are above the edge; 0 where it may be folded next."""
        if not self._rows:
            return None
        here = round(self.scroll_y)
        key = self._row_at(here).key
        return key, 0 if key[0] in FOLDABLE else here - self._start(key)

    def action_scroll_home(self) -> None:
        if self._rows:
            self._go_to(self._rows[0].key)

    def action_scroll_end(self) -> None:
        """To the last line: where that is, is known once it is drawn."""
        height = -1
        while height != (height := self._starts[-1]):
            self._go(self.max_scroll_y)

    def _go_to(self, key: Key, below: int = 0) -> None:
        """To a part: as long as something on the way is drawn for the first time, it may have moved."""
        height = -1
        while height != (height := self._starts[-1]):
            self._go(self._start(key) + below)

    def _go(self, y: int) -> None:
        self._move(y)
        self._settle()

    def _move(self, y: float) -> None:
        """Scroll now: a movement that is shown would aim at where a line was before others were drawn."""
        self.scroll_target_y = self.scroll_y = y

    # Drawing

    def _settle(self) -> None:
        """Draw what is in sight; the first line in sight that was drawn before stays where it is."""
        if self._settling or not self._rows or not self._width:
            return
        self._settling = True
        try:
            while (index := self._undrawn()) is not None:
                top = round(self.scroll_y)
                anchor = next((row for row in self._in_sight() if row.strips is not None), None)
                if anchor is None:
                    anchor = self._rows[index]
                before = self._starts[self._rows.index(anchor)]
                self._draw(index)
                if anchor in self._rows and (moved := self._starts[self._rows.index(anchor)] - before):
                    self._move(top + moved)
        finally:
            self._settling = False

    def _in_sight(self) -> Sequence[Row]:
        top = round(self.scroll_y)
        return self._rows[self._index_at(top) : self._index_at(top + max(self.size.height, 1) - 1) + 1]

    def _undrawn(self) -> int | None:
        first = self._index_at(round(self.scroll_y))
        return next((first + n for n, row in enumerate(self._in_sight()) if row.strips is None), None)

    def _draw(self, index: int) -> None:
        row = self._rows[index]
        if row.unopened:
            blocks = [
                Row(row.part, heading=False, block=block, height=self._guess(block.characters, block.lines))
                for block in row.part.body()
            ]
            self._rows[index : index + 1] = blocks
        else:
            row.strips = self._strips(row)
            row.height = len(row.strips)
        self._measure()

    def _strips(self, row: Row) -> list[Strip]:
        part = row.part
        shown: RenderableType
        if row.block is not None:
            shown = part.indented(row.block)
        else:
            mark = "" if part.kind not in FOLDABLE else FOLDED if self._is_folded(row.key) else OPEN
            shown = part.heading(mark)
        # Textual draws in all colours, and takes away what the terminal has not.
        console = Console(
            file=io.StringIO(), width=self._width, force_terminal=True, color_system="truecolor",
            no_color=self.app.no_color, legacy_windows=False, markup=False, emoji=False, highlight=False,
        )  # fmt: skip
        return [Strip(line, self._width) for line in console.render_lines(shown, console.options)]

    def render_line(self, y: int) -> Strip:
        place = round(self.scroll_y) + y
        if not self._rows or place >= self._starts[-1]:
            return Strip.blank(self._width, self.rich_style)
        index = self._index_at(place)
        strips = self._rows[index].strips or []
        offset = place - self._starts[index]
        strip = strips[offset] if offset < len(strips) else Strip.blank(self._width)
        return strip.apply_style(self.rich_style)

    # Events

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._settle()

    def on_resize(self, event: events.Resize) -> None:
        if self._width != self._drawing_width:
            self._drawing_width = self._width
            self._build(self._place())
        else:
            self._settle()

    def on_click(self, event: events.Click) -> None:
        if not self._rows:
            return
        row = self._row_at(round(self.scroll_y) + event.get_content_offset_capture(self).y)
        if self._folds(row):
            self._turned ^= {row.key}
            self._build(self._place())
