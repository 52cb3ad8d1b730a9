"""The screen of one trajectory, with keys to the other ones in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.console import Console
from rich.text import Text
from textual.binding import Binding, BindingType

from sweet.view.app.frame import CandidatesAsked, attempt, show_message
from sweet.view.app.parts_screen import PartsScreen
from sweet.view.app.parts_view import RANKED, THOUGHTS, Key
from sweet.view.app.pictures_screen import pages_of_turns, show_pictures, shows_pictures
from sweet.view.app.side_by_side_screen import ChooseDialogue, SideBySideScreen
from sweet.view.dialogue_view import DisplayOptions, dialogue, dialogue_parts, headline
from sweet.view.pairs import Pair, Side
from sweet.view.parts import UNWRAPPED, Part
from sweet.view.records import Records, Summary
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.selection import failed


class DialogueScreen(PartsScreen):
    """Shows a trajectory as a dialogue.

    Args:
        shown: the trajectories that n and p step through, starting at `position`.
        hidden: show the hidden information.
        screenshots: the screenshots of the run, for dialogues about pages.
        hits: the texts to mark, by trajectory.
        unfolded: begin with the candidates of all turns.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "walk(1)", "next", tooltip="next dialogue"),
        Binding("p", "walk(-1)", "previous", tooltip="previous dialogue"),
        Binding("f", "next_failure", "failure", tooltip="next failure"),
        Binding("F", "next_fault", "fault", tooltip="next fault of a server, the clock or the human", show=False),
        Binding("h", "hidden", "hidden", tooltip="information that is hidden from the agent"),
        Binding("c", "fold", "candidates", tooltip="candidates and pairs of all turns"),
        Binding("t", "fold_thoughts", "thoughts", tooltip="thoughts of all turns", show=False),
        Binding("enter", "fold_here", "candidates", tooltip="thought, candidates and pairs of this turn", show=False),
        Binding("s", "beside", "beside", tooltip="beside another dialogue of the task"),
        Binding("i", "pictures", "pictures", tooltip="the page of this turn beside the reference, large"),
    ]

    def __init__(
        self,
        records: Records,
        shown: Sequence[Summary],
        position: int,
        *,
        hidden: bool = False,
        screenshots: RunScreenshots | None = None,
        hits: Mapping[str, Sequence[str]] | None = None,
        unfolded: bool = False,
    ) -> None:
        super().__init__(records, DisplayOptions.of(records, hidden=hidden, screenshots=screenshots))
        self.shown, self.position = list(shown), position
        self.record = records.record(self.current)
        self._hits, self._unfolded = hits or {}, unfolded
        self._before_hidden: tuple[Key, int] | None = None

    def on_mount(self) -> None:
        super().on_mount()
        if self._unfolded:
            self.view.fold(RANKED)

    def redraw(self, *, stay: bool = False) -> None:
        self.view.mark_hits(self._hits.get(self.current.id, ()))
        super().redraw(stay=stay)

    @property
    def current(self) -> Summary:
        return self.shown[self.position]

    def facts(self) -> list[str | Text]:
        position = Text(f"{self.position + 1:,} of {len(self.shown):,}", "bold")
        return [position, *headline(self.record)]

    def parts(self) -> Sequence[Part]:
        return dialogue_parts(self.record, self.options)

    def text_to_copy(self) -> str:
        """Return the dialogue as plain text."""
        console = Console(width=10 * UNWRAPPED, markup=False, emoji=False, highlight=False, color_system=None)
        with console.capture() as capture:
            console.print(dialogue(self.record, self.options))
        return capture.get()

    def reload(self) -> None:
        """Redraw the trajectory at the same position if it has changed."""
        self.shown[self.position] = self.records.find(self.current.id)
        record = self.records.record(self.current)
        if record != self.record:
            self.record = record
            self.redraw(stay=True)

    def _go(self, position: int | None, missing: str) -> None:
        if position is None or not 0 <= position < len(self.shown):
            show_message(self.app, missing)
            return
        target = position

        def go() -> None:
            self.record = self.records.record(self.shown[target])
            self.position = target
            self.redraw()

        attempt(self.app, go)

    def _next(self, passes: Callable[[Summary], bool]) -> int | None:
        return next((n for n in range(self.position + 1, len(self.shown)) if passes(self.shown[n])), None)

    def action_walk(self, step: int) -> None:
        self._go(self.position + step, "this is the last one" if step > 0 else "this is the first one")

    def action_next_failure(self) -> None:
        self._go(self._next(failed), "no further failure")

    def action_next_fault(self) -> None:
        self._go(self._next(lambda summary: bool(summary.fault)), "no further fault")

    def action_hidden(self) -> None:
        """Show the hidden information and move to it, or hide it and move back."""
        revealed = not self.options.hidden
        self.options = replace(self.options, hidden=revealed)
        if revealed:
            self._before_hidden = self.view.place()
        self.redraw(stay=True)
        if revealed:
            self.view.show_kind("hidden")
        elif self._before_hidden is not None:
            self.view.return_to(self._before_hidden)
        show_message(self.app, "h returns" if revealed else "hidden information is hidden")

    def action_fold(self) -> None:
        if self.view.has(RANKED):
            self.view.fold(RANKED)
        else:
            self.post_message(CandidatesAsked(self.current))

    def action_fold_thoughts(self) -> None:
        self.view.fold(THOUGHTS)

    def action_fold_here(self) -> None:
        self.view.fold_here()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "pictures" or shows_pictures(self.options.screenshots)

    def action_pictures(self) -> None:
        """Show the page of the turn at the upper edge, else of the one before it; above the turns the first page."""
        screenshots = self.options.screenshots
        if screenshots is None:
            return
        turns, shown = pages_of_turns(self.record.trajectory, screenshots)
        if not shown:
            show_message(self.app, "no turn of this dialogue has a page")
            return
        place = self.view.place()
        here = place[0][1] if place is not None else None
        if here is None:  # above or below the turns
            here = 0 if self.view.scroll_y == 0 else len(self.record.trajectory.dialogue_history)
        before = [number for number, turn in enumerate(turns) if turn <= here]
        show_pictures(self.app, self.current, shown, before[-1] if before else 0)

    def action_beside(self) -> None:
        task = self.current.task_id
        others = [s for s in self.records.summaries() if s.task_id == task and s.id != self.current.id]
        if not others:
            show_message(self.app, "there is no other dialogue of this task")
        elif len(others) == 1:
            self._beside(others[0])
        else:
            self.app.push_screen(ChooseDialogue(others), self._beside)

    def _beside(self, other: Summary | None) -> None:
        if other is not None:
            pair, side = Pair(self.current, other), Side(self.records, self.options.screenshots)
            attempt(self.app, lambda: self.app.push_screen(SideBySideScreen([pair], 0, side, side)))
