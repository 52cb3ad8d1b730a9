"""What the screens of one dialogue and of two have in common: facts, parts, and the keys that move in them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sweet.view.app.frame import Facts, Keys, tell
from sweet.view.app.parts_view import PartsView
from sweet.view.dialogue_view import Manner
from sweet.view.parts import Part
from sweet.view.records import Records, Summary


class PartsScreen(Screen[None]):
    """Shows parts; how they are shown is in `manner`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "jump(1)", "turn", key_display="]", tooltip="next turn"),
        Binding("left_square_bracket", "jump(-1)", "turn", key_display="[", tooltip="previous turn", show=False),
        Binding("r", "raw", "raw", tooltip="texts as they are, without Markdown and colours", show=False),
        Binding("j", "line(1)", "down", show=False),
        Binding("k", "line(-1)", "up", show=False),
        Binding("space", "page(1)", "a screen down", show=False),
        Binding("backspace", "page(-1)", "a screen up", show=False),
    ]

    def __init__(self, records: Records, manner: Manner) -> None:
        super().__init__()
        self.records, self.manner = records, manner
        self.view = PartsView()

    def compose(self) -> ComposeResult:
        yield Facts()
        yield self.view
        yield Keys()

    def on_mount(self) -> None:
        self.view.focus()
        self.tell_all()

    @property
    @abstractmethod
    def current(self) -> Summary | None:
        """The trajectory that is looked at."""

    @abstractmethod
    def facts(self) -> list[str | Text]:
        """What stands above."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """What is shown."""

    def tell_all(self, *, stay: bool = False) -> None:
        """Show it, anew; `stay` at the part that is looked at."""
        self.query_one(Facts).tell(self.facts())
        self.view.show(self.parts(), stay=stay)

    def action_jump(self, step: int) -> None:
        if not self.view.jump(step):
            tell(self.app, "this is the last turn" if step > 0 else "this is the first turn")

    def action_raw(self) -> None:
        self.manner = replace(self.manner, raw=not self.manner.raw)
        self.tell_all(stay=True)

    def action_line(self, lines: int) -> None:
        self.view.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        self.view.scroll_relative(y=pages * max(self.view.size.height - 1, 1), animate=False)
