"""A prompt at the bottom of the screen for one line of text."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from sweet.view.app.frame import Facts
from sweet.view.text import printable_line


class Prompt(ModalScreen[str | None]):
    """Asks for one line; the result is None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Facts()
            # The value may come from a file, so it is shown in printable form.
            yield Input(self._shown, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self._update()

    def _update(self) -> None:
        question = Text(printable_line(self._question), "bold")
        self.query_one(Facts).set_facts([question, *self._hints()])

    def _hints(self) -> list[Text]:
        return [Text(printable_line(hint), "dim") for hint in (self._hint, "enter", "esc leaves") if hint]

    @property
    def _shown(self) -> str:
        return printable_line(self._value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(self._value if event.value == self._shown else event.value)


class SearchPrompt(Prompt):
    """Asks what to search for, as text or as a regular expression.

    Attributes:
        regex: search for a regular expression instead of a text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+r", "regex", "text or regular expression", priority=True)]

    def __init__(self, value: str = "", *, regex: bool = False) -> None:
        super().__init__("search", value)
        self.regex = regex

    def _hints(self) -> list[Text]:
        chosen, other = ("regular expression", "text") if self.regex else ("text", "regular expression")
        return [Text(chosen, "bold cyan"), Text(f"^r {other}", "dim"), *super()._hints()]

    def action_regex(self) -> None:
        self.regex = not self.regex
        self._update()
