"""The screen of two trajectories of a task side by side, and the list to choose the second one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sweet.view.app.frame import attempt, show_message
from sweet.view.app.parts_screen import PartsScreen
from sweet.view.app.pictures_screen import Shown, show_pictures, shows_pictures
from sweet.view.dialogue_view import DisplayOptions
from sweet.view.pairs import Pair, Side
from sweet.view.parts import Part
from sweet.view.records import Record, Summary
from sweet.view.side_by_side import diff_text, last_pages, side_by_side_parts
from sweet.view.terminal import format_number, outcome_text
from sweet.view.text import printable_line


class SideBySideScreen(PartsScreen):
    """Shows two trajectories of a task, A and B, and the differences of their answers.

    Args:
        pairs: those that n and p step through, starting at `position`.
        a, b: the rollouts that they are of; the same ones for two trajectories of one rollout.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "next_difference", "difference", tooltip="next difference, also in the next two"),
        Binding("n", "walk(1)", "next", tooltip="the next two"),
        Binding("p", "walk(-1)", "previous", tooltip="the previous two"),
        Binding("i", "pictures", "pictures", tooltip="the last pages beside the reference, large"),
    ]

    def __init__(self, pairs: Sequence[Pair], position: int, a: Side, b: Side) -> None:
        super().__init__(a.records, DisplayOptions.of(a.records, screenshots=a.screenshots))
        self.pairs, self.position, self.a, self.b = list(pairs), position, a, b
        self.both = self._read(self.pairs[position])

    def _read(self, pair: Pair) -> tuple[Record, Record]:
        return self.a.records.record(pair.left), self.b.records.record(pair.right)

    @property
    def current(self) -> Summary:
        return self.pairs[self.position].left

    def facts(self) -> list[str | Text]:
        several = f"{self.position + 1:,} of {len(self.pairs):,}" if len(self.pairs) > 1 else ""
        facts: list[str | Text] = [Text("side by side", "bold"), several, f"task {self.current.task_id}"]
        return facts if self.a == self.b else [*facts, f"A {self.a.name}", f"B {self.b.name}"]

    def parts(self) -> Sequence[Part]:
        return side_by_side_parts(*self.both, self.options, self.b.screenshots)

    def text_to_copy(self) -> str:
        """Return the diff of the answers."""
        return diff_text(*self.both)

    def reload(self) -> None:
        """Redraw the trajectories at the same position if they have changed."""
        before = self.pairs[self.position]
        pair = Pair(self.a.records.find(before.left.id), self.b.records.find(before.right.id))
        self.pairs[self.position] = pair
        both = self._read(pair)
        if both != self.both:
            self.both = both
            self.redraw(stay=True)

    def _go(self, position: int) -> bool:
        """Show other two; return False if there are none, or they cannot be read."""
        if not 0 <= position < len(self.pairs):
            return False

        def go() -> None:
            self.both = self._read(self.pairs[position])
            self.position = position
            self.redraw()

        return attempt(self.app, go)

    def action_walk(self, step: int) -> None:
        if not 0 <= self.position + step < len(self.pairs):
            show_message(self.app, "these are the last two" if step > 0 else "these are the first two")
            return
        self._go(self.position + step)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "pictures" or shows_pictures(self.options.screenshots)

    def action_pictures(self) -> None:
        left, right = self.options.screenshots, self.b.screenshots or self.options.screenshots
        if left is not None and right is not None:
            both = Shown("the last pages", partial(last_pages, *self.both, left, right))
            show_pictures(self.app, self.current, [both], 0)

    def action_next_difference(self) -> None:
        """Scroll to the next difference, in the following pairs too."""
        while not self.view.next_difference():
            if self.position + 1 == len(self.pairs):
                show_message(self.app, "no further difference")
                return
            if not self._go(self.position + 1):
                return


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
