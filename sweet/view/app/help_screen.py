"""The list of the keys of a screen, generated from its bindings."""

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

_TEXTUAL_ACTIONS = {binding.action for binding in (*Screen.BINDINGS, *App.BINDINGS) if isinstance(binding, Binding)}
"""The bindings of Textual on every screen, which are not listed."""


class HelpScreen(ModalScreen[None]):
    """Lists the keys until a key closes it."""

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
    """Return a table with one row per action and its keys: those of the screen, of the application, and for moving."""
    keys: dict[str, list[str]] = {}
    for active in sorted(bindings, key=_rank):
        binding = active.binding
        description = binding.tooltip or binding.description
        if description and binding.action not in _TEXTUAL_ACTIONS:
            keys.setdefault(description, []).append(app.get_key_display(binding))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, style="bold")
    table.add_column()
    for description, names in keys.items():
        table.add_row(Text(" ".join(names)), Text(description))
    return table


def _rank(active: ActiveBinding) -> int:
    return 0 if isinstance(active.node, Screen) else 1 if isinstance(active.node, App) else 2
