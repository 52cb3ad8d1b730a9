"""The keys of a screen, read from its bindings: what is bound is listed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

_TEXTUALS = {binding.action for binding in (*Screen.BINDINGS, *App.BINDINGS) if isinstance(binding, Binding)}
"""What Textual binds on every screen: not worth a line."""


class HelpScreen(ModalScreen[None]):
    """Lists keys until a key is pressed that leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "leave", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
    ]

    def __init__(self, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__()
        self._listed = list(bindings)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(keys_table(self.app, self._listed))

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


def keys_table(app: App[object], bindings: Iterable[ActiveBinding]) -> Table:
    """A line with all keys for what each does: the screen's, those that work everywhere, and how to move about."""
    keys: dict[str, list[str]] = {}
    for active in sorted(bindings, key=_place):
        binding = active.binding
        told = binding.tooltip or binding.description
        if told and binding.action not in _TEXTUALS:
            keys.setdefault(told, []).append(app.get_key_display(binding))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, style="bold")
    table.add_column()
    for told, names in keys.items():
        table.add_row(Text(" ".join(names)), Text(told))
    return table


def _place(active: ActiveBinding) -> int:
    return 0 if isinstance(active.node, Screen) else 1 if isinstance(active.node, App) else 2
