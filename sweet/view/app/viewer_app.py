"""The application: one run, its table of dialogues, and the actions that every screen has in common.

Screens display and scroll. Actions that work on all of them (comparing, leaving) are here and get the
`current` dialogue from the screen. Data is read from files through `Records` only.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import ClassVar

from textual.actions import ActionParseResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from sweet.errors import SweetError
from sweet.runs.run import Run
from sweet.view.app.dialogue_screen import DialogueScreen
from sweet.view.app.frame import TerminalApp, hide_keys, show_message
from sweet.view.app.table_screen import TableScreen
from sweet.view.pairs import Pair
from sweet.view.records import Summary
from sweet.view.viewer import ViewConfig, Viewer


class ViewerApp(TerminalApp):
    """The viewer of one run.

    Attributes:
        served: whether it is drawn in a browser, which must not stop the process.
    """

    TITLE = "sweet view"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+z", "suspend_process", "to the shell, fg comes back", show=False),
        Binding("question_mark", "help", "keys", key_display="?", tooltip="this list"),
        Binding("q,escape", "leave", "back", tooltip="back to the table"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, run: Run, config: ViewConfig, *, served: bool = False) -> None:
        super().__init__()
        self.viewer = Viewer(run, config)
        self.table = TableScreen(self.viewer)
        self.served = served

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.served and action == "suspend_process")

    def get_default_screen(self) -> Screen[None]:
        return self.table

    def on_ready(self) -> None:
        gc.enable()  # see `browse`

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action, and show a message if it fails, for instance because a file is damaged."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except (SweetError, OSError) as error:
            show_message(self, str(error), error=True)
            return True

    @property
    def _current(self) -> Summary | None:
        """The dialogue of the screen, or under the cursor of the table."""
        return self.screen.current if isinstance(self.screen, TableScreen | DialogueScreen) else None

    def action_leave(self) -> None:
        """Hide the list of keys, or return to the previous screen. The table's cursor moves to the dialogue that was
        shown."""
        if hide_keys(self.screen):
            return
        if self.screen is not self.table:
            left = self._current
            self.pop_screen()
            if left is not None and self.screen is self.table:
                self.table.move_to(left.id)
        else:
            self.exit()

    def action_beside(self) -> None:
        """Show a dialogue beside the next one of its task."""
        current, summaries = self._current, self.viewer.records.summaries()
        if current is None:
            return
        same = [one for one in summaries if one.task_id == current.task_id]
        after = same[(same.index(current) + 1) % len(same)]
        if after is current:
            show_message(self, "there is no other dialogue of this task")
        else:
            self.push_screen(DialogueScreen([Pair(current, after)], 0, self.viewer.a))
