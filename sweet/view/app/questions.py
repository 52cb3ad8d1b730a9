"""What the viewer asks: for a line of text at the bottom of the screen, or for one of several lines over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from sweet.view.app.frame import Facts
from sweet.view.text import printable_line


class Prompt(ModalScreen[str | None]):
    """Asks for one line; the result is None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        facts = Facts()
        facts.set_facts([Text(self._question, "bold"), *(Text(one, "dim") for one in (self._hint, "esc leaves"))])
        with Vertical():
            yield facts
            # The value may come from a file, so it is shown in printable form.
            yield Input(printable_line(self._value), compact=True, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(self._value if event.value == printable_line(self._value) else event.value)


class Choose(ModalScreen[int | None]):
    """Asks for one of several lines; the result is its position, None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "leave")]
    DEFAULT_CSS = """
    Choose { align: center middle; }
    Choose OptionList, Choose OptionList:focus {
        width: 76; max-width: 100%; height: auto; max-height: 80%;
        border: round ansi_bright_black; background: ansi_default;
    }
    """

    def __init__(self, question: str, lines: Sequence[Text], here: int = 0) -> None:
        super().__init__()
        self._question, self._lines, self._here = question, lines, here

    def compose(self) -> ComposeResult:
        for line in self._lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        chosen = OptionList(*map(Option, self._lines), markup=False)
        chosen.border_title = self._question
        chosen.highlighted = self._here
        yield chosen

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)
