"""The application: one run, its table of trajectories, and the actions that every screen has in common.

Screens display and scroll. Actions that work on all of them (bookmarks, copying, exporting, searching, leaving) are
here and get the `current` trajectory from the screen. Data is read from files through `Records` only. Every text from a
model or a file is drawn literally, never as markup.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual.actions import ActionParseResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from sweet.errors import SweetError, UsageError, for_command_line
from sweet.runs.manifest import Artifact, Manifest
from sweet.runs.run import Run
from sweet.units import count
from sweet.view.app.choices import ChooseRollouts
from sweet.view.app.comparison_screen import ComparisonScreen
from sweet.view.app.frame import CandidatesAsked, ViewerScreen, attempt, show_message
from sweet.view.app.graphics import Graphics
from sweet.view.app.help_screen import HelpScreen
from sweet.view.app.prompt import Prompt, SearchPrompt
from sweet.view.app.table_screen import TableScreen
from sweet.view.app.terminal_app import TerminalApp
from sweet.view.bookmarks import Bookmarks, export
from sweet.view.pairs import open_side
from sweet.view.records import Records, Summary, ranked_rollouts
from sweet.view.run_screenshots import RunScreenshots
from sweet.view.text import printable
from sweet.view.viewer import ViewConfig

LIVE = 1.0
"""Seconds between two checks of the disk."""

LOCAL_ACTIONS = frozenset({"export", "suspend_process"})
"""What a browser may not ask for."""


class ViewerApp(TerminalApp):
    """The viewer of one run.

    Attributes:
        served: whether it is drawn in a browser, which must not write files nor stop the process.
        graphics: how the terminal draws pictures.
        failure: the unexpected end of the application: an exception, or an interrupt from outside.
    """

    TITLE = "sweet view"
    CSS_PATH = "viewer.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/", tooltip="search in dialogues and code"),
        Binding("b", "bookmark", "bookmark", tooltip="bookmark, with a note"),
        Binding("y", "copy", "copy", tooltip="copy to the clipboard", show=False),
        Binding("e", "export", "export", tooltip="export the marked dialogues, else the shown ones", show=False),
        Binding("ctrl+z", "suspend_process", "to the shell, fg comes back", show=False),
        Binding("question_mark", "help", "keys", key_display="?", tooltip="this list"),
        Binding("q,escape", "leave", "back", tooltip="back to the table"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, run: Run, config: ViewConfig, *, served: bool = False) -> None:
        super().__init__()
        self.run_ = run
        self.records = Records(run, config.from_)
        self.bookmarks = Bookmarks(run, self.records.rollouts.id)
        self.screenshots = RunScreenshots.of(run, self.records.rollouts, draw=config.pictures)
        self.table = TableScreen(self.records, self.bookmarks, config, self.screenshots)
        self.config, self.served = config, served
        self.beside = None if config.against is None else open_side(run, config.against, draw=config.pictures)
        self.graphics = Graphics()
        self.failure: BaseException | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.served and action in LOCAL_ACTIONS)

    def get_default_screen(self) -> Screen[None]:
        return self.table

    def on_load(self) -> None:
        # asyncio would cancel the running tasks, and Textual mistakes some of that for a regular exit.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def on_mount(self) -> None:
        self.set_interval(LIVE, self.check_disk)
        if self.beside is not None:
            self.push_screen(ComparisonScreen(self.table, self.beside, self.config.changed))

    def on_table_screen_filtered(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ComparisonScreen):
                screen.narrow()

    def _interrupt(self) -> None:
        self.failure = self.failure or KeyboardInterrupt()
        self.exit()

    def on_ready(self) -> None:
        gc.enable()  # see `browse`

    def check_disk(self) -> None:
        """Read the disk again and show what has changed, or why it cannot be read."""
        before, problem = self.table.problem, ""
        try:
            notes = self.bookmarks.notes
            self.bookmarks.reload()
            if self.records.refresh() or before or self.bookmarks.notes != notes:
                self.reload()
        except (SweetError, OSError) as error:
            problem = for_command_line(error)
        if problem != before:
            self.table.show_problem(problem)
            if problem and self.screen is not self.table:
                show_message(self, problem, error=True)

    def reload(self) -> None:
        """Redraw every screen."""
        for screen in self.screen_stack:
            if isinstance(screen, ViewerScreen):
                screen.reload()

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
            show_message(self, for_command_line(error), error=True)
            return True

    @property
    def viewer_screen(self) -> ViewerScreen:
        """The visible screen, or the one below a prompt."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, ViewerScreen)), self.table)

    @property
    def current(self) -> Summary | None:
        current = self.viewer_screen.current
        if current is None:
            show_message(self, "there is no dialogue here")
        return current

    def action_leave(self) -> None:
        """Return to the previous screen. The table's cursor moves to the trajectory that was shown."""
        if len(self.screen_stack) == 1:
            self.exit()
            return
        left = self.viewer_screen.current
        self.pop_screen()
        if left is not None and self.screen is self.table:
            self.table.find(left.id)

    def switch(self, rollouts: str) -> None:
        """Show other rollouts of the run in the table.

        Raises:
            SweetError, OSError: they cannot be read; everything stays as it is.
        """
        records = Records(self.run_, rollouts)
        bookmarks = Bookmarks(self.run_, records.rollouts.id)
        screenshots = RunScreenshots.of(self.run_, records.rollouts, draw=self.config.pictures)
        records.summaries()
        while self.screen is not self.table:
            self.pop_screen()
        self.records, self.bookmarks, self.screenshots = records, bookmarks, screenshots
        self.table.adopt(records, bookmarks, screenshots)

    def _rollouts(self, manifest: Manifest) -> list[Artifact]:
        """Return the rollouts of the run that can be shown, in the order in which they ended."""
        return [one for one in manifest.of_kind("rollouts") if self.run_.file(one).exists()]

    def action_rollouts(self) -> None:
        manifest = self.run_.manifest()
        listed = self._rollouts(manifest)

        def choose(chosen: str | None) -> None:
            if chosen is not None and chosen != self.records.rollouts.id:
                attempt(self, lambda: self.switch(chosen))

        self.push_screen(ChooseRollouts("which rollouts?", manifest, listed, self.records.rollouts.id), choose)

    def action_against(self) -> None:
        manifest, here = self.run_.manifest(), self.records.rollouts.id
        listed = self._rollouts(manifest)
        others = [one for one in listed if one.id != here]
        if not others:
            show_message(self, "the run has no other rollouts; sweet view --against RUN takes those of another")
            return

        def compare(chosen: str) -> None:
            """Show both; A is the earlier one."""
            a, b = sorted((here, chosen), key=[one.id for one in listed].index)
            if a != here:
                self.switch(a)
            beside = open_side(self.run_, b, draw=self.config.pictures)
            self.push_screen(ComparisonScreen(self.table, beside))

        def answered(chosen: str | None) -> None:
            if chosen is not None:
                attempt(self, lambda: compare(chosen))

        self.push_screen(ChooseRollouts("beside which rollouts?", manifest, others), answered)

    def on_candidates_asked(self, event: CandidatesAsked) -> None:
        """Open the rollouts that have candidates, at a dialogue of the same task if one has some."""
        ranked = ranked_rollouts(self.run_.manifest())
        here = self.records.rollouts.id
        if not ranked:
            show_message(self, "nothing in this run was ranked: sweet rank")
        elif any(one.id == here for one in ranked):
            others = count(len(self.records.ranked_ids()), "dialogue")
            show_message(self, f"no turn of this dialogue was ranked; {others} of {here} have candidates")
        else:
            attempt(self, lambda: self._open_ranked(ranked[0].id, event.current))

    def _open_ranked(self, rollouts: str, like: Summary) -> None:
        self.switch(rollouts)
        ids, shown = self.records.ranked_ids(), self.table.rows.shown
        having = [summary for summary in shown if summary.id in ids]
        chosen = next((one for one in having if one.task_id == like.task_id), having[0] if having else None)
        if chosen is None:
            show_message(self, f"{rollouts} has the candidates, of dialogues that are filtered out; x removes filters")
            return
        self.table.find(chosen.id)
        self.table.open_dialogue(unfolded=True)
        show_message(self, f"{rollouts} has the candidates")

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen.active_bindings.values()))

    def action_copy(self) -> None:
        # The printable form, because the user may paste it into a shell.
        text = printable(self.viewer_screen.text_to_copy())
        self.copy_to_clipboard(text)
        show_message(self, f"copied {len(text):,} characters" if text else "there is nothing to copy")

    def action_search(self) -> None:
        prompt = SearchPrompt(self.table.searched, regex=self.table.regex)

        def search(pattern: str | None) -> None:
            if pattern is None:
                return
            while not isinstance(self.screen, TableScreen | ComparisonScreen):
                self.pop_screen()
            attempt(self, lambda: self.table.search(pattern, regex=prompt.regex))

        self.push_screen(prompt, search)

    def action_bookmark(self) -> None:
        current = self.current
        if current is None:
            return
        name = current.id
        noted = self.bookmarks.notes.get(name)

        def note(text: str | None) -> None:
            if text is None:
                return
            removes = noted is not None and not text
            if attempt(self, lambda: self.bookmarks.remove(name) if removes else self.bookmarks.set(name, text)):
                show_message(self, "bookmark removed" if removes else "bookmarked")
                attempt(self, self.reload)

        hint = "" if noted is None else "an empty note removes it"
        self.push_screen(Prompt(f"note on {name}", noted or "", hint), note)

    def action_export(self) -> None:
        chosen = self.table.chosen
        if not chosen:
            show_message(self, "there is no dialogue here")
            return
        numbers = count(len(chosen), "dialogue")

        def write(name: str | None) -> None:
            if name:
                show_message(self, f"exporting {numbers}")
                self.run_worker(self._export(chosen, Path(name).expanduser(), numbers))

        proposed = f"{self.run_.path.absolute().name}-selection.jsonl"
        self.push_screen(Prompt(f"export {numbers} to", proposed), write)

    async def _export(self, chosen: Sequence[Summary], path: Path, numbers: str) -> None:
        try:
            await asyncio.to_thread(self._write, chosen, path)
        except (SweetError, OSError) as error:
            show_message(self, for_command_line(error), error=True)
        else:
            show_message(self, f"{numbers} written to {path}")

    def _write(self, chosen: Sequence[Summary], path: Path) -> None:
        if path.exists():
            raise UsageError("This file already exists.", where=path, fix="another name")
        # A separate Records, because the screens use theirs at the same time.
        export(Records(self.run_, self.records.rollouts.id), chosen, path)

    def _handle_exception(self, error: Exception) -> None:
        """End the application after an unexpected error, which the command line reports afterwards."""
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Print no traceback, which would contain the values of variables."""
        self._close_messages_no_wait()
