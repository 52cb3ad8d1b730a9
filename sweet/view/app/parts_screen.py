"""The base of the screens of one dialogue and of two: facts, parts, and the keys to move in them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sweet.view.app.frame import Facts, Keys, show_message
from sweet.view.app.parts_view import PartsView
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.parts import Part
from sweet.view.records import Records, Summary


class PartsScreen(Screen[None]):
    """Shows parts with the display options in `options`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "jump(1)", "turn", key_display="]", tooltip="next turn"),
        Binding("left_square_bracket", "jump(-1)", "turn", key_display="[", tooltip="previous turn", show=False),
        Binding("r", "raw", "raw", tooltip="unchanged texts, without Markdown and colours", show=False),
        Binding("j", "line(1)", "down", show=False),
        Binding("k", "line(-1)", "up", show=False),
        Binding("space", "page(1)", "a screen down", show=False),
        Binding("backspace", "page(-1)", "a screen up", show=False),
    ]

    def __init__(self, records: Records, options: DisplayOptions) -> None:
        super().__init__()
        self.records, self.options = records, options
        self.view = PartsView()

    def compose(self) -> ComposeResult:
        yield Facts()
        yield self.view
        yield Keys()

    def on_mount(self) -> None:
        self.view.focus()
        self.redraw()

    @property
    @abstractmethod
    def current(self) -> Summary | None:
        """The trajectory that is shown."""

    @abstractmethod
    def facts(self) -> list[str | Text]:
        """Return the facts at the top."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Return the parts to show."""

    def redraw(self, *, stay: bool = False) -> None:
        """Draw everything again. `stay` keeps the scroll position at the visible part."""
        self.query_one(Facts).set_facts(self.facts())
        self.view.show(self.parts(), stay=stay)

    def action_jump(self, step: int) -> None:
        if not self.view.jump(step):
            show_message(self.app, "this is the last turn" if step > 0 else "this is the first turn")

    def action_raw(self) -> None:
        self.options = replace(self.options, raw=not self.options.raw)
        self.redraw(stay=True)

    def action_line(self, lines: int) -> None:
        self.view.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        self.view.scroll_relative(y=pages * max(self.view.size.height - 1, 1), animate=False)
