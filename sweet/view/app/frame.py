"""The frame of a screen: facts at the top, the main keys at the bottom; and the interface of all screens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.binding import ActiveBinding
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget

from sweet.errors import SweetError, for_command_line
from sweet.view.records import Summary
from sweet.view.text import printable_line

BEGINNING = 24
"""Cells of a fact that may be cut, below which it goes to a line of its own."""


@runtime_checkable
class ViewerScreen(Protocol):
    """A screen of the viewer."""

    @property
    def current(self) -> Summary | None:
        """The trajectory that is shown."""

    def text_to_copy(self) -> str:
        """Return the text to copy."""

    def reload(self) -> None:
        """Redraw after a change of the records, marks or bookmarks."""


class CandidatesAsked(Message):
    """Candidates are asked for, and the current trajectory has none."""

    def __init__(self, current: Summary) -> None:
        super().__init__()
        self.current = current


def show_message(app: App[Any], message: str, *, error: bool = False) -> None:
    """Show a message above the keys for some seconds; it may contain untrusted text."""
    shown = printable_line(message)
    app.clear_notifications()
    app.notify(f"error: {shown}" if error else shown, severity="error" if error else "information", markup=False)


def attempt(app: App[Any], work: Callable[[], object]) -> bool:
    """Call `work` and show a message if it fails. Return whether it succeeded."""
    try:
        work()
    except (SweetError, OSError) as error:
        show_message(app, for_command_line(error), error=True)
        return False
    return True


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
        shown: dict[str, Text] = {}
        for _, binding, enabled, _ in sorted(self.screen.active_bindings.values(), key=_leaving):
            if binding.show and enabled and binding.action not in shown:
                word = Text(self.app.get_key_display(binding), "bold").append(f" {binding.description}", "not bold")
                word.stylize(Style(meta={"@click": f"app.simulate_key({binding.key!r})"}))
                shown[binding.action] = word
        words = list(shown.values())
        kept, last = words[:-2], words[-2:]
        while kept and sum(word.cell_len + 2 for word in kept + last) > self.content_region.width + 2:
            kept.pop()
        return Text("  ").join(kept + last)


def _leaving(active: ActiveBinding) -> int:
    """Sort help and leave to the end."""
    return {"help": 1, "leave": 2, "app.leave": 2}.get(active.binding.action, 0)
