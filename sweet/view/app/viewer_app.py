"""The application: one run, its table of dialogues, and the actions that every screen has in common.

Screens display and scroll. Actions that work on all of them (copying, comparing, leaving) are here and get the
`current` dialogue from the screen. Data is read from files through `Records` only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.actions import ActionParseResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from sweet.errors import SweetError
from sweet.runs.manifest import Artifact, Manifest
from sweet.runs.run import Run
from sweet.units import count
from sweet.view.app.dialogue_screen import DialogueScreen
from sweet.view.app.frame import Choose, TerminalApp, attempt, show_message
from sweet.view.app.table_screen import TableScreen
from sweet.view.pairs import Pair, Side
from sweet.view.records import Summary, ranked_rollouts
from sweet.view.terminal import format_number, outcome_text
from sweet.view.text import printable, printable_line
from sweet.view.viewer import ViewConfig, Viewer


class ViewerApp(TerminalApp):
    """The viewer of one run.

    Attributes:
        served: whether it is drawn in a browser, which must not stop the process.
    """

    TITLE = "sweet view"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "copy", tooltip="copy to the clipboard", show=False),
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
    def viewer_screen(self) -> TableScreen | DialogueScreen:
        """The visible screen, or the one below a question."""
        screens = (screen for screen in reversed(self.screen_stack) if isinstance(screen, TableScreen | DialogueScreen))
        return next(screens, self.table)

    def action_leave(self) -> None:
        """Return to the previous screen, from a comparison to the dialogues of A. The table's cursor moves to the
        dialogue that was shown."""
        if self.screen is not self.table:
            left = self.viewer_screen.current
            self.pop_screen()
            if left is not None and self.screen is self.table:
                self.table.move_to(left.id)
        elif self.viewer.b is not None:
            self.viewer.b = None
            self.table.reopen()
        else:
            self.exit()

    def _listed(self, manifest: Manifest) -> list[Artifact]:
        """Return the rollouts of the run that can be shown, in the order in which they ended."""
        return [one for one in manifest.of_kind("rollouts") if self.viewer.run.file(one).exists()]

    def _switch(self, a: str, b: str | None) -> None:
        """Show other rollouts of the run in the table.

        Raises:
            SweetError, OSError: they cannot be read; everything stays as it is.
        """
        opened = [None if one is None else self._side(one) for one in (a, b)]
        assert opened[0] is not None
        self.viewer.a, self.viewer.b = opened[0], opened[1]
        self.table.rows.cursor = 0
        self.table.reopen()

    def _side(self, rollouts: str) -> Side:
        side = Side.of(self.viewer.run, rollouts, draw=self.viewer.config.screenshots)
        side.records.summaries()
        return side

    def _choose(self, question: str, lines: Sequence[Text], work: Callable[[int], object], here: int = 0) -> None:
        """Ask for one of several lines, and work with its position."""

        def answered(position: int | None) -> None:
            if position is not None:
                attempt(self, lambda: work(position))

        self.push_screen(Choose(question, lines, here), answered)

    def action_rollouts(self) -> None:
        manifest, here = self.viewer.run.manifest(), self.viewer.records.rollouts.id
        listed = self._listed(manifest)
        ids = [one.id for one in listed]
        self._choose(
            "which rollouts?",
            _rollouts_in_words(manifest, listed),
            lambda position: self._switch(ids[position], None),
            ids.index(here) if here in ids else 0,
        )

    def action_against(self) -> None:
        """Show both; A is the earlier one."""
        manifest, here = self.viewer.run.manifest(), self.viewer.records.rollouts.id
        listed = self._listed(manifest)
        ids = [one.id for one in listed]
        others = [one for one in listed if one.id != here]
        if not others:
            show_message(self, "the run has no other rollouts; sweet view --against RUN takes those of another")
            return
        self._choose(
            "beside which rollouts?",
            _rollouts_in_words(manifest, others),
            lambda position: self._switch(*sorted((here, others[position].id), key=ids.index)),
        )

    def action_beside(self) -> None:
        """Show two dialogues of a task side by side."""
        current = self.viewer_screen.current
        if current is None:
            return
        summaries = self.viewer.records.summaries()
        others = [one for one in summaries if one.task_id == current.task_id and one.id != current.id]

        def beside(position: int) -> None:
            self.push_screen(DialogueScreen([Pair(current, others[position])], 0, self.viewer.a))

        if not others:
            show_message(self, "there is no other dialogue of this task")
        elif len(others) == 1:
            attempt(self, lambda: beside(0))
        else:
            self._choose("beside which?", _dialogues_in_words(others), beside)

    def action_copy(self) -> None:
        # The printable form, because the user may paste it into a shell.
        text = printable(self.viewer_screen.text_to_copy())
        self.copy_to_clipboard(text)
        show_message(self, f"copied {len(text):,} characters" if text else "there is nothing to copy")


def _rollouts_in_words(manifest: Manifest, listed: Sequence[Artifact]) -> list[Text]:
    """Return the id of each rollouts artifact with what distinguishes it from the others of the run."""
    ranked = {source.id for source in ranked_rollouts(manifest)}
    lines = []
    for artifact in listed:
        facts = [
            f"{artifact.id:<12}",
            "unfinished" if artifact.rows is None else count(artifact.rows, "dialogue"),
            *(f"{key} {artifact.meta[key]}" for key in ("agent", "split") if artifact.meta.get(key)),
            "with candidates" if artifact.id in ranked else "",
        ]
        lines.append(Text("  ".join(printable_line(fact) for fact in facts if fact)))
    return lines


def _dialogues_in_words(summaries: Sequence[Summary]) -> list[Text]:
    longest = max(len(printable_line(summary.id)) for summary in summaries)
    return [
        Text(f"{printable_line(one.id).ljust(longest)}  {format_number(one.reward)}  ").append_text(outcome_text(one))
        for one in summaries
    ]
