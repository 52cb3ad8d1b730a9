"""The screen of two trajectories of a task side by side, and the list to choose the second one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sweet.view.app.parts_screen import PartsScreen
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.parts import Part
from sweet.view.records import Records, Summary
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.side_by_side import diff_text, side_by_side_parts
from sweet.view.terminal import format_number, outcome_text
from sweet.view.text import printable_line


class SideBySideScreen(PartsScreen):
    """Shows two trajectories of a task, A and B, and the differences of their answers.

    Args:
        screenshots: the screenshots of the run, for dialogues about pages.
    """

    def __init__(
        self, records: Records, left: Summary, right: Summary, *, screenshots: RunScreenshots | None = None
    ) -> None:
        super().__init__(records, DisplayOptions.of(records, screenshots=screenshots))
        self.left, self.right = left, right
        self.both = records.record(left), records.record(right)

    @property
    def current(self) -> Summary:
        return self.left

    def facts(self) -> list[str | Text]:
        return [Text("side by side", "bold"), f"task {self.left.task_id}"]

    def parts(self) -> Sequence[Part]:
        return side_by_side_parts(*self.both, self.options)

    def text_to_copy(self) -> str:
        """Return the diff of the answers."""
        return diff_text(*self.both)

    def reload(self) -> None:
        """Redraw the trajectories at the same position if they have changed."""
        self.left, self.right = self.records.find(self.left.id), self.records.find(self.right.id)
        both = self.records.record(self.left), self.records.record(self.right)
        if both != self.both:
            self.both = both
            self.redraw(stay=True)


class ChooseDialogue(ModalScreen[Summary | None]):
    """Asks for another dialogue of the task; the result is None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "leave")]
    DEFAULT_CSS = """
    ChooseDialogue { align: center middle; }
    ChooseDialogue OptionList, ChooseDialogue OptionList:focus {
        width: 60; max-width: 100%; height: auto; max-height: 80%;
        border: round ansi_bright_black; background: ansi_default;
    }
    """

    def __init__(self, others: Sequence[Summary]) -> None:
        super().__init__()
        self._others = list(others)

    def compose(self) -> ComposeResult:
        longest = max(len(printable_line(summary.id)) for summary in self._others)
        chosen = OptionList(*(Option(_line(summary, longest)) for summary in self._others), markup=False)
        chosen.border_title = "beside which?"
        yield chosen

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._others[event.option_index])


def _line(summary: Summary, longest: int) -> Text:
    line = Text(printable_line(summary.id).ljust(longest), no_wrap=True, overflow="ellipsis")
    return line.append(f"  {format_number(summary.reward)}  ").append_text(outcome_text(summary))
