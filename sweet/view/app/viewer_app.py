"""The application: one run, its table of trajectories, and what every screen can do with the one that is looked at.

Screens show and move; what works on any of them (bookmarks, copying, exporting, searching, leaving) is an action here,
which asks the screen for its `current` trajectory. Data is read from files through `Records` only. Every text from a
model or a file is drawn as it is, never read as markup.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual.actions import ActionParseResult
from textual.app import App
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen

from sweet.errors import SweetError, UsageError, for_command_line
from sweet.runs.run import Run
from sweet.view.app.frame import Shows, attempt, tell
from sweet.view.app.help_screen import HelpScreen
from sweet.view.app.prompt import Prompt, SearchPrompt
from sweet.view.app.table_screen import TableScreen
from sweet.view.bookmarks import Bookmarks, export
from sweet.view.records import Records, Summary
from sweet.view.screenshots import Album
from sweet.view.terminal import count
from sweet.view.text import printable
from sweet.view.viewer import ViewConfig

LIVE = 1.0
"""Seconds between two looks at the disk."""

THEME = "ansi-dark"
"""The terminal's own colours: readable wherever the person's shell is, in a light terminal too."""


class ViewerApp(App[None]):
    """The viewer of one run.

    Attributes:
        failure: what ended the application though nobody meant it: an exception, or an interrupt from outside.
    """

    TITLE = "sweet view"
    CSS_PATH = "viewer.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/", tooltip="search in dialogues and code"),
        Binding("b", "bookmark", "bookmark", tooltip="bookmark, with a note"),
        Binding("y", "copy", "copy", tooltip="copy to the clipboard", show=False),
        Binding("e", "export", "export", tooltip="export what is marked, else what is shown", show=False),
        Binding("ctrl+z", "suspend_process", "to the shell, fg comes back", show=False),
        Binding("question_mark", "help", "keys", key_display="?", tooltip="this list"),
        Binding("q,escape", "leave", "back", tooltip="back to the table"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(self, run: Run, config: ViewConfig) -> None:
        super().__init__(ansi_color=True)  # said before there is a theme: else NO_COLOR would mean black on black
        self.theme = THEME
        self.animation_level = "none"
        self.run_ = run
        self.records = Records(run, config.from_)
        self.bookmarks = Bookmarks(run, self.records.rollouts.id)
        self.album = Album.of(run, self.records.rollouts, draw=config.pictures)
        self.table = TableScreen(self.records, self.bookmarks, config, self.album)
        self.failure: BaseException | None = None

    def get_default_screen(self) -> Screen[None]:
        return self.table

    def on_load(self) -> None:
        # asyncio would cancel whatever goes on, and Textual takes some of that for an end that was asked for.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def on_mount(self) -> None:
        self.set_interval(LIVE, self.look)

    def _interrupt(self) -> None:
        self.failure = self.failure or KeyboardInterrupt()
        self.exit()

    def on_ready(self) -> None:
        gc.enable()  # see `browse`

    def look(self) -> None:
        """Look at the disk again; what has changed is shown, and so is why it cannot be read."""
        before, problem = self.table.problem, ""
        try:
            noted = self.bookmarks.notes
            self.bookmarks.reload()
            if self.records.refresh() or before or self.bookmarks.notes != noted:
                self.reload()
        except (SweetError, OSError) as error:
            problem = for_command_line(error)
        if problem != before:
            self.table.tell_problem(problem)
            if problem and self.screen is not self.table:
                tell(self, problem, error=True)

    def reload(self) -> None:
        """Every screen draws anew what it shows."""
        for screen in self.screen_stack:
            if isinstance(screen, Shows):
                screen.reload()

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """What a key does may fail, as files may break; then why is told, on whatever screen it is."""
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except (SweetError, OSError) as error:
            tell(self, for_command_line(error), error=True)
            return True

    @property
    def shows(self) -> Shows:
        """The screen that is looked at, or the one below a question."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, Shows)), self.table)

    @property
    def current(self) -> Summary | None:
        current = self.shows.current
        if current is None:
            tell(self, "there is no trajectory here")
        return current

    def action_leave(self) -> None:
        """To the screen before; the table's cursor follows to the trajectory that was looked at."""
        if len(self.screen_stack) == 1:
            self.exit()
            return
        left = self.shows.current
        self.pop_screen()
        if left is not None and self.screen is self.table:
            self.table.find(left.id)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen.active_bindings.values()))

    def action_copy(self) -> None:
        # As it is shown: what was copied may be pasted into a shell.
        text = printable(self.shows.copied())
        self.copy_to_clipboard(text)
        tell(self, f"copied {len(text):,} characters" if text else "there is nothing to copy")

    def action_search(self) -> None:
        prompt = SearchPrompt(self.table.searched, regex=self.table.regex)

        def search(pattern: str | None) -> None:
            if pattern is None:
                return
            while self.screen is not self.table:
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
                tell(self, "bookmark removed" if removes else "bookmarked")
                attempt(self, self.reload)

        hint = "" if noted is None else "nothing removes it"
        self.push_screen(Prompt(f"note on {name}", noted or "", hint), note)

    def action_export(self) -> None:
        chosen = self.table.chosen
        if not chosen:
            tell(self, "there is no trajectory here")
            return
        numbers = count(len(chosen), "trajectory")

        def write(name: str | None) -> None:
            if name:
                tell(self, f"exporting {numbers}")
                self.run_worker(self._export(chosen, Path(name).expanduser(), numbers))

        proposed = f"{self.run_.path.absolute().name}-selection.jsonl"
        self.push_screen(Prompt(f"export {numbers} to", proposed), write)

    async def _export(self, chosen: Sequence[Summary], path: Path, numbers: str) -> None:
        try:
            await asyncio.to_thread(self._write, chosen, path)
        except (SweetError, OSError) as error:
            tell(self, for_command_line(error), error=True)
        else:
            tell(self, f"{numbers} written to {path}")

    def _write(self, chosen: Sequence[Summary], path: Path) -> None:
        if path.exists():
            raise UsageError("This file is there already.", where=path, fix="another name")
        # Records of its own: those of the screens are used meanwhile.
        export(Records(self.run_, self.records.rollouts.id), chosen, path)

    def _handle_exception(self, error: Exception) -> None:
        """What nobody meant ends the application; the command line tells of it, once the terminal is its own again."""
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """No traceback on the terminal, with the values of variables in it."""
        self._close_messages_no_wait()
