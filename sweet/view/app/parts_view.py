"""A scrolled view of parts that are drawn when they become visible.

The height of a part that was not visible yet is estimated from its length, so that a long dialogue opens as fast as a
short one. The view is a list of rows: the heading of a part, an unopened body, or a block of a body. Visible rows are
drawn; if the real height differs from the estimate, the rows around move, but the visible lines stay in place.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sweet.view.parts import Block, Part
from sweet.view.text import printable_line

FOLDED, OPEN = "▸ ", "▾ "
THOUGHTS = frozenset({"thought"})
RANKED = frozenset({"candidates", "pairs"})
FOLDABLE = THOUGHTS | RANKED
STOPS = frozenset({"agent", "answer"})
"""The kinds of parts that `jump` stops at."""

HIT = Style(reverse=True)
"""How a text that was searched for is drawn."""

Key = tuple[str, int | None]


@dataclass(eq=False)
class Row:
    """Some lines of the view.

    Attributes:
        block: a block of the part's body; None for its heading, or for an unopened body.
        height: an estimate until the strips are drawn.
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


def marked(strip: Strip, hits: Sequence[str]) -> Strip:
    """Return a line on which these texts, in lower case, are drawn in reverse."""
    text = strip.text.lower()
    if not any(hit in text for hit in hits) or len(text) != len(strip.text):
        return strip
    within = [False] * len(text)
    for hit in hits:
        start = text.find(hit)
        while start >= 0:
            within[start : start + len(hit)] = [True] * len(hit)
            start = text.find(hit, start + len(hit))
    pieces: list[Segment] = []
    position = 0
    for segment in strip:
        for found, run in groupby(within[position : position + len(segment.text)]):
            length = len(list(run))
            style = (segment.style or Style()) + HIT if found else segment.style
            pieces.append(Segment(strip.text[position : position + length], style))
            position += length
    return Strip(pieces, strip.cell_length)


class PartsView(ScrollView, can_focus=True):
    """Parts, one below the other; thoughts, `candidates` and `pairs` are folded at first."""

    DEFAULT_CSS = "PartsView { height: 1fr; overflow-x: hidden; overflow-y: scroll; padding: 0 0 0 1; }"
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._parts: Sequence[Part] = ()
        self._rows: list[Row] = []
        self._starts: list[int] = [0]
        self._folded = set(FOLDABLE)
        self._toggled: set[Key] = set()
        self._drawing_width = 0
        self._settling = False
        self._hits: Sequence[str] = ()

    # Content

    def mark_hits(self, hits: Sequence[str]) -> None:
        """Mark these texts wherever they are on one line of the screen; takes effect at the next `show`."""
        self._hits = [printable_line(hit).lower() for hit in hits]

    def place(self) -> tuple[Key, int] | None:
        """Return what is at the upper edge, for `return_to`."""
        return self._anchor()

    def return_to(self, place: tuple[Key, int] | None) -> None:
        self._build(place)

    def show(self, parts: Sequence[Part], *, stay: bool = False) -> None:
        """Replace the parts. `stay` keeps the scroll position if the visible part still exists."""
        anchor = self._anchor() if stay else None
        self._parts = parts
        self._build(anchor)

    def fold(self, kinds: frozenset[str]) -> None:
        """Fold all parts of these kinds, or unfold them if all are folded."""
        keys = {row.key for row in self._rows if self._folds(row) and row.part.kind in kinds}
        opened = any(not self._is_folded(key) for key in keys)
        self._folded = self._folded | kinds if opened else self._folded - kinds
        self._toggled = {key for key in self._toggled if key[0] not in kinds}
        self._build(self._anchor())

    def fold_here(self) -> None:
        """Fold or unfold the parts of the first visible turn that has such parts."""
        turn = next((row.part.turn for row in self._visible_rows() if self._folds(row)), None)
        keys = {row.key for row in self._rows if self._folds(row) and row.part.turn == turn}
        opened = any(not self._is_folded(key) for key in keys)
        self._toggled ^= {key for key in keys if self._is_folded(key) != opened}
        self._build(self._anchor())

    @staticmethod
    def _folds(row: Row) -> bool:
        return row.heading and row.part.kind in FOLDABLE

    def _is_folded(self, key: Key) -> bool:
        return (key[0] in self._folded) != (key in self._toggled)

    def jump(self, step: int) -> bool:
        """Scroll to the next or the previous turn of the agent. Return False if there is none."""
        return self._jump(step, lambda part: part.kind in STOPS)

    def next_difference(self) -> bool:
        """Scroll to the next part whose sides differ. Return False if there is none."""
        return self._jump(1, lambda part: part.differs)

    def show_kind(self, kind: str) -> bool:
        """Scroll to the first part of a kind. Return False if there is none."""
        key = next((row.key for row in self._rows if row.heading and row.part.kind == kind), None)
        if key is not None:
            self._go_to(key)
        return key is not None

    def has(self, kinds: frozenset[str]) -> bool:
        return any(part.kind in kinds for part in self._parts)

    def _jump(self, step: int, wanted: Callable[[Part], bool]) -> bool:
        here = round(self.scroll_y)
        rows = [row for row in self._rows_with_starts() if row[0].heading and wanted(row[0].part)]
        if step > 0:
            further = [row.key for row, start in rows if start > here]
        else:
            further = [row.key for row, start in reversed(rows) if start < here]
        if not further or (step > 0 and here >= self.max_scroll_y):
            return False
        self._go_to(further[0])
        return True

    # Rows

    def _build(self, anchor: tuple[Key, int] | None) -> None:
        """Build the rows and scroll to an anchor."""
        self._rows = []
        for part in self._parts:
            folded = part.kind in FOLDABLE and self._is_folded((part.kind, part.turn))
            if part.title:
                self._rows.append(Row(part, heading=True, height=1 if part.inner else 2))
            if not folded:
                self._rows.append(Row(part, heading=False, height=self._estimate(part.characters, 1)))
        self._measure()
        if anchor is None or anchor[0] not in {row.key for row in self._rows}:
            self.action_scroll_home()
        else:
            self._go_to(*anchor)
        self.refresh()

    def _estimate(self, characters: int, lines: int) -> int:
        return max(lines, 1) + characters // max(self._width - 4, 10)

    @property
    def _width(self) -> int:
        """Columns of text; one column before the scroll bar stays free."""
        return max(self.scrollable_content_region.width - 1, 0)

    def _measure(self) -> None:
        """Compute the first line of each row from the current heights."""
        self._starts = [0, *accumulate(row.height for row in self._rows)]
        self.virtual_size = Size(self._width, self._starts[-1])

    def _index_at(self, y: int) -> int:
        return min(max(bisect_right(self._starts, y) - 1, 0), len(self._rows) - 1)

    def _row_at(self, y: int) -> Row:
        return self._rows[self._index_at(y)]

    def _rows_with_starts(self) -> list[tuple[Row, int]]:
        """Return the rows with their first lines."""
        return list(zip(self._rows, self._starts, strict=False))

    def _start(self, key: Key) -> int:
        return next((start for row, start in self._rows_with_starts() if row.key == key), 0)

    def _anchor(self) -> tuple[Key, int] | None:
        """Return the part at the upper edge and its number of lines above the edge, 0 for a foldable part."""
        if not self._rows:
            return None
        here = round(self.scroll_y)
        key = self._row_at(here).key
        return key, 0 if key[0] in FOLDABLE else here - self._start(key)

    def action_scroll_home(self) -> None:
        if self._rows:
            self._go_to(self._rows[0].key)

    def action_scroll_end(self) -> None:
        """Scroll to the last line, whose position is known only after it is drawn."""
        height = -1
        while height != (height := self._starts[-1]):
            self._go(self.max_scroll_y)

    def _go_to(self, key: Key, below: int = 0) -> None:
        """Scroll to a part, repeatedly, because drawing other rows for the first time may move it."""
        height = -1
        while height != (height := self._starts[-1]):
            self._go(self._start(key) + below)

    def _go(self, y: int) -> None:
        self._move(y)
        self._settle()

    def _move(self, y: float) -> None:
        """Scroll at once: an animation would aim at the position before other rows were drawn."""
        self.scroll_target_y = self.scroll_y = y

    # HalfBlocks

    def _settle(self) -> None:
        """Draw the visible rows. The first visible row that was drawn before stays in place."""
        if self._settling or not self._rows or not self._width:
            return
        self._settling = True
        try:
            while (index := self._undrawn()) is not None:
                top = round(self.scroll_y)
                anchor = next((row for row in self._visible_rows() if row.strips is not None), None)
                if anchor is None:
                    anchor = self._rows[index]
                before = self._starts[self._rows.index(anchor)]
                self._draw(index)
                if anchor in self._rows and (moved := self._starts[self._rows.index(anchor)] - before):
                    self._move(top + moved)
        finally:
            self._settling = False

    def _visible_rows(self) -> Sequence[Row]:
        top = round(self.scroll_y)
        return self._rows[self._index_at(top) : self._index_at(top + max(self.size.height, 1) - 1) + 1]

    def _undrawn(self) -> int | None:
        first = self._index_at(round(self.scroll_y))
        return next((first + n for n, row in enumerate(self._visible_rows()) if row.strips is None), None)

    def _draw(self, index: int) -> None:
        row = self._rows[index]
        if row.unopened:
            blocks = [
                Row(row.part, heading=False, block=block, height=self._estimate(block.characters, block.lines))
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
        # Textual draws in true colour and reduces it to the colours of the terminal.
        console = Console(
            file=io.StringIO(), width=self._width, force_terminal=True, color_system="truecolor",
            no_color=self.app.no_color, legacy_windows=False, markup=False, emoji=False, highlight=False,
        )  # fmt: skip
        return [marked(Strip(line, self._width), self._hits) for line in console.render_lines(shown, console.options)]

    def render_line(self, y: int) -> Strip:
        position = round(self.scroll_y) + y
        if not self._rows or position >= self._starts[-1]:
            return Strip.blank(self._width, self.rich_style)
        index = self._index_at(position)
        strips = self._rows[index].strips or []
        offset = position - self._starts[index]
        strip = strips[offset] if offset < len(strips) else Strip.blank(self._width)
        return strip.apply_style(self.rich_style)

    # Events

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._settle()

    def on_resize(self, event: events.Resize) -> None:
        if self._width != self._drawing_width:
            self._drawing_width = self._width
            self._build(self._anchor())
        else:
            self._settle()

    def on_click(self, event: events.Click) -> None:
        if not self._rows:
            return
        row = self._row_at(round(self.scroll_y) + event.get_content_offset_capture(self).y)
        if self._folds(row):
            self._toggled ^= {row.key}
            self._build(self._anchor())
