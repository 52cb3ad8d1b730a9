"""What the applications of `sweet view` and `sweet play` have in common: their frame, colours, questions and end.

They draw in the terminal's colours. A terminal mixes faint text with its background; the terminal in the page of a
browser (xterm.js) does so twice, and on black a quarter of white is left. There faint text is drawn in a grey of its
own, and what has a colour keeps it. Every text from a model or a file is drawn literally, never as markup.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Vertical
from textual.filter import LineFilter
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, KeyPanel

from sweet.view.text import printable_line

THEME = "ansi-dark"
"""The terminal's own colours, which are readable on dark and light terminals."""
GREY = Style(color="#949494", dim=False)
"""Faint text on black: a contrast of 7 to 1."""
BEGINNING = 24
"""Cells of a fact that may be cut, below which it goes to a line of its own."""


@lru_cache(1024)
def _readable(style: Style) -> Style:
    plain = style.color is None or style.color.is_default
    return style + (GREY if plain else Style(dim=False))


class ReadableFaintText(LineFilter):
    """Draws faint text in a grey, for a terminal that is black."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(one.text, _readable(one.style), one.control) if one.style is not None and one.style.dim else one
            for one in segments
        ]


class TerminalApp(App[None]):
    """An application in the terminal's own colours, without animations.

    Attributes:
        failure: the unexpected end of the application: an exception, or an interrupt from outside.
    """

    CSS_PATH = Path(__file__).with_name("viewer.tcss")
    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__(ansi_color=True)  # set before the theme: otherwise NO_COLOR would give black on black
        self.theme = THEME
        self.animation_level = "none"
        self.failure: BaseException | None = None
        self._faint = ReadableFaintText()

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._faint] if self.is_web and not self.no_color else filters

    def on_load(self) -> None:
        # asyncio would cancel the running tasks, and Textual mistakes some of that for a regular exit.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        self.failure = self.failure or KeyboardInterrupt()
        self.exit()

    def action_help(self) -> None:
        """Show all keys beside the screen, scroll to those for which there is no room, or hide them again."""
        panel = next(iter(self.screen.query(KeyPanel)), None)
        if panel is None:
            self.screen.mount(KeyPanel())
        elif panel.is_vertical_scroll_end:
            panel.remove()
        else:
            panel.scroll_page_down(animate=False)

    def _handle_exception(self, error: Exception) -> None:
        """End the application after an unexpected error, which the command line reports afterwards."""
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Print no traceback, which would contain the values of variables."""
        self._close_messages_no_wait()


def hide_keys(screen: Screen[Any]) -> bool:
    """Hide the list of keys; return whether it was shown."""
    panels = screen.query(KeyPanel)
    panels.remove()
    return bool(panels)


def show_message(app: App[Any], message: str, *, error: bool = False) -> None:
    """Show a message above the keys for some seconds; it may contain untrusted text."""
    shown = printable_line(message)
    app.clear_notifications()
    app.notify(f"error: {shown}" if error else shown, severity="error" if error else "information", markup=False)


class Facts(Widget):
    """Facts on one line, or on several lines if they do not fit; a fact is never split. One whose `Text.overflow` is
    "ellipsis" is cut where its line ends, if that shows its beginning. Hidden without facts."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "Facts { height: auto; width: 100%; padding: 0 1; }"

    def __init__(self, style: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._style = style
        self._facts: list[Text] = []

    def set_facts(self, facts: Iterable[str | Text]) -> None:
        """Show these facts, which may contain untrusted text."""
        self._facts = [
            fact if isinstance(fact, Text) else Text(printable_line(fact), self._style) for fact in facts if fact
        ]
        self.display = bool(self._facts)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Text:
        return Text("\n").join(self._lines(self.content_region.width))

    def _lines(self, width: int) -> list[Text]:
        lines: list[Text] = []
        for fact in self._facts:
            needed = min(fact.cell_len, BEGINNING) if fact.overflow == "ellipsis" else fact.cell_len
            if lines and lines[-1].cell_len + 3 + needed <= width:
                lines[-1].append(" · ", "dim").append_text(fact)
            else:
                lines.append(Text(no_wrap=True).append_text(fact))
        for line in lines:
            line.truncate(max(width, 1), overflow="ellipsis")
        return lines


class Keys(Widget):
    """The main keys of this screen, as many as fit; the last two, help and leave, are always shown."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "Keys { height: 1; width: 100%; dock: bottom; padding: 0 1; }"

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, _: Screen[object]) -> None:
        self.refresh()

    def render(self) -> Text:
        """Return the line. A click on a key simulates the key."""
        by_action: dict[str, Text] = {}
        ends = {"help": 1, "leave": 2, "app.leave": 2}
        in_order = sorted(self.screen.active_bindings.values(), key=lambda active: ends.get(active.binding.action, 0))
        for _, binding, enabled, _ in in_order:
            if binding.show and enabled and binding.action not in by_action:
                word = Text(self.app.get_key_display(binding), "bold").append(f" {binding.description}", "not bold")
                word.stylize(Style(meta={"@click": f"app.simulate_key({binding.key!r})"}))
                by_action[binding.action] = word
        words = list(by_action.values())
        first, last = words[:-2], words[-2:]
        while first and sum(word.cell_len + 2 for word in first + last) > self.content_region.width + 2:
            first.pop()
        return Text("  ").join(first + last)


class Prompt(ModalScreen[str | None]):
    """Asks for one line; the result is None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        facts = Facts()
        facts.set_facts([Text(self._question, "bold"), *(Text(hint, "dim") for hint in (self._hint, "esc leaves"))])
        with Vertical():
            yield facts
            # The value may come from a file, so it is shown in printable form.
            yield Input(printable_line(self._value), compact=True, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(self._value if event.value == printable_line(self._value) else event.value)
