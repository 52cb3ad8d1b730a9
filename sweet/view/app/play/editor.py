"""The field in which a person writes a message of several lines."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from sweet.rollouts.play.typed import cleaned
from sweet.view.app.frame import show_message


class Editor(TextArea):
    """A text field. What is pasted loses its control characters before it is drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.read", "read", tooltip="the dialogue; i writes")]

    def __init__(self, longest: int) -> None:
        super().__init__(soft_wrap=True, tab_behavior="indent", compact=True, theme="css", highlight_cursor_line=False)
        self.longest = longest

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a pasted text, or refuse it if it is longer than a message may be."""
        text = cleaned(event.text)
        if len(text) + len(self.text) > self.longest:
            event.prevent_default()
            event.stop()
            show_message(
                self.app,
                f"not pasted: {len(text):,} characters, and a message has at most {self.longest:,}",
                error=True,
            )
            return
        event.text = text  # the handler of the base class, which is called next, inserts it
