"""The rows of the table, one line each, drawn when they are visible.

Textual's DataTable keeps an object per cell: filling 15,000 rows takes half a second, and refilling them seconds, at
every filter. Here a table is a list of summaries and an offset, and replacing the list costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sweet.view.pairs import Row
from sweet.view.table import COLUMNS, Column, Layout, needs_of

GUTTER = 2
"""Cells left of the columns: the cursor, a blank."""
CURSOR = Style(reverse=True)


class Rows(ScrollView, can_focus=True, inherit_bindings=False):
    """The table. Its first line is the header, which stays.

    Attributes:
        columns: a terminal may be too narrow for some.
        shown: the rows in their order.
        cursor: the position of the current one.
    """

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "a page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "a page up", show=False),
        Binding("home,g", "to(0)", "first", show=False),
        Binding("end,G", "to(-1)", "last", show=False),
        Binding("enter", "screen.open", "open", tooltip="open the dialogue"),
    ]

    class Moved(Message):
        """The cursor is at another dialogue, or at none."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: Sequence[Column] = COLUMNS
        self.shown: Sequence[Row] = ()
        self.cursor = 0
        self.sort: tuple[str, bool] = ("order", False)
        self._needs: Mapping[Column, int] = needs_of((), COLUMNS)
        self._cached_layout: tuple[int, Layout] | None = None

    @property
    def current(self) -> Row | None:
        """The row under the cursor; None if there is none."""
        return self.shown[self.cursor] if self.shown else None

    def measure(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Set the columns, and their widths for these rows, shown or not."""
        self.columns = columns
        self._needs, self._cached_layout = needs_of(rows, columns), None

    @property
    def _layout(self) -> Layout:
        """The layout for the current width; the first drawing may precede the first resize event."""
        width = self.scrollable_content_region.width - GUTTER
        if self._cached_layout is None or self._cached_layout[0] != width:
            self._cached_layout = width, Layout.of(self._needs, width)
        return self._cached_layout[1]

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows. The cursor stays at its dialogue."""
        before = self.current
        self.shown = rows
        position = None if before is None else self.find(before.id)
        self._lay_out()
        self.move_to(self.cursor if position is None else position)

    def move_to(self, position: int) -> None:
        """Move the cursor to a position, or to the nearest row."""
        before, self.cursor = self.cursor, max(0, min(position, len(self.shown) - 1))
        height = self._height
        top = self.scroll_offset.y
        if not self._is_visible(self.cursor):
            far = abs(self.cursor - before) > height
            top = self.cursor - height // 2 if far else min(max(top, self.cursor - height + 1), self.cursor)
            self._scroll(top)
        self.refresh_line(before + 1)
        self.refresh_line(self.cursor + 1)
        self.post_message(self.Moved())

    def hidden_values(self, row: Row) -> list[Text]:
        """Return the values that the columns have no room for, with their titles, except the name; prose is last, and
        may be cut."""
        visible = set(self._layout.whole(row))
        hidden = [column for column in self.columns if column not in visible and column.kind != "name"]
        return [
            Text(f"{column.title} {column.shown(row)}", "dim", overflow="ellipsis" if column.kind == "prose" else None)
            for column in sorted(hidden, key=lambda column: column.kind == "prose")
            if column.value(row) not in (None, "") and column.shown(row)
        ]

    def find(self, name: str) -> int | None:
        """Return the position of a dialogue; None if it is not shown."""
        return next((n for n, row in enumerate(self.shown) if row.id == name), None)

    @property
    def _height(self) -> int:
        """The number of visible rows."""
        return max(self.size.height - 1, 1)

    def _is_visible(self, position: int) -> bool:
        return self.scroll_offset.y <= position < self.scroll_offset.y + self._height

    def _scroll(self, line: int) -> None:
        self.scroll_to(y=max(line, 0), animate=False, force=True, immediate=True)

    def _lay_out(self) -> None:
        self.virtual_size = Size(0, len(self.shown) + 1)
        self.refresh()
        self.post_message(self.Moved())

    def on_resize(self) -> None:
        self._lay_out()
        if self.shown and not self._is_visible(self.cursor):
            self._scroll(self.cursor - self._height // 2)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        position = y - 1 + self.scroll_offset.y
        if y == 0:
            line = Text(" " * GUTTER).append_text(self._layout.header(*self.sort))
        elif position < len(self.shown):
            line = Text("› " if position == self.cursor else "  ", end="")
            line.append_text(self._layout.row(self.shown[position]))
        else:
            return Strip.blank(width, self.rich_style)
        if y and position == self.cursor:
            strip = Strip([Segment(line.plain, CURSOR)]).adjust_cell_length(width, CURSOR)
        else:
            strip = Strip(line.render(self.app.console)).adjust_cell_length(width)
        return strip.apply_style(self.rich_style)

    def action_move(self, rows: int) -> None:
        self.move_to(self.cursor + rows)

    def action_page(self, pages: int) -> None:
        self.move_to(self.cursor + pages * self._height)

    def action_to(self, position: int) -> None:
        self.move_to(position if position >= 0 else len(self.shown) + position)

    async def on_click(self, event: events.Click) -> None:
        position = event.y - 1 + self.scroll_offset.y
        if event.y == 0 or position >= len(self.shown):
            return
        if event.chain > 1:
            await self.run_action("screen.open")
        else:
            self.move_to(position)
