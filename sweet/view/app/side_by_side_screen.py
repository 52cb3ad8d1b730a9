"""Two trajectories of a task beside each other, and the choice of the second."""

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
from sweet.view.dialogue_view import Manner
from sweet.view.parts import Part
from sweet.view.records import Records, Summary
from sweet.view.screenshots import Album
from sweet.view.side_by_side import diff_text, side_by_side_parts
from sweet.view.terminal import figure, outcome_text
from sweet.view.text import printable_line


class SideBySide(PartsScreen):
    """Two trajectories of a task, A and B, and what tells their answers apart.

    Args:
        album: where the dialogues are about pages: their screenshots.
    """

    def __init__(self, records: Records, left: Summary, right: Summary, *, album: Album | None = None) -> None:
        super().__init__(records, Manner.of(records, album=album))
        self.left, self.right = left, right
        self.both = records.record(left), records.record(right)

    @property
    def current(self) -> Summary:
        return self.left

    def facts(self) -> list[str | Text]:
        return [Text("side by side", "bold"), f"task {self.left.task_id}"]

    def parts(self) -> Sequence[Part]:
        return side_by_side_parts(*self.both, self.manner)

    def copied(self) -> str:
        """The difference of the answers."""
        return diff_text(*self.both)

    def reload(self) -> None:
        """What was shown and has changed since is shown anew, where it was."""
        self.left, self.right = self.records.find(self.left.id), self.records.find(self.right.id)
        both = self.records.record(self.left), self.records.record(self.right)
        if both != self.both:
            self.both = both
            self.tell_all(stay=True)


class Others(ModalScreen[Summary | None]):
    """Asks which other dialogue of the task is meant; None where the person thought better of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "leave")]
    DEFAULT_CSS = """
    Others { align: center middle; }
    Others OptionList, Others OptionList:focus {
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
    return line.append(f"  {figure(summary.reward)}  ").append_text(outcome_text(summary))
