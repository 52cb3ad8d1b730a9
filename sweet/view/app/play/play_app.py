"""The application of `sweet play`: runs the player in its event loop, draws situations, and passes on what is done.

It implements `sweet.rollouts.play.seat.Interface`. Text of models, tasks and persons is drawn literally.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from sweet.rollouts.play.seat import Action, Leave, Play, Situation, Table
from sweet.runs.run import Run
from sweet.view.app.frame import show_message
from sweet.view.app.help_screen import HelpScreen
from sweet.view.app.play.play_screen import PlayScreen
from sweet.view.app.terminal_app import TerminalApp

STYLES = Path(__file__).parents[1] / "viewer.tcss"


class PlayApp(TerminalApp):
    """Plays until the player ends.

    Attributes:
        failure: the unexpected end of the application: an exception, or an interrupt from outside.
    """

    TITLE = "sweet play"
    CSS_PATH = STYLES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "keys", key_display="F1", tooltip="this list", priority=True),
        Binding("question_mark", "help", "keys", show=False, tooltip="this list"),
        Binding("ctrl+q", "leave", "leave", key_display="^q", tooltip="leave; the dialogue is saved"),
        Binding("ctrl+c", "leave", show=False, priority=True),
    ]

    def __init__(self, run: Run, play: Play, title: str) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self.player_screen = PlayScreen(run, title, self.act)
        self._play = play
        self._actions: asyncio.Queue[Action] = asyncio.Queue()
        self._playing: asyncio.Task[None] | None = None

    def get_default_screen(self) -> Screen[None]:
        return self.player_screen

    def on_load(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def on_ready(self) -> None:
        self._playing = asyncio.create_task(self._run_play())

    async def _run_play(self) -> None:
        await asyncio.sleep(0.05)  # the first screen is drawn before a model is loaded, which blocks
        try:
            await self._play(self._actions)
        except Exception as error:
            self.failure = self.failure or error
        self.exit()

    async def on_unmount(self) -> None:
        """Let the player close what it has opened, whatever ended the application."""
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait([self._playing])

    def _interrupt(self) -> None:
        self.failure = self.failure or KeyboardInterrupt()
        self.exit()

    def act(self, action: Action) -> None:
        self._actions.put_nowait(action)

    def action_leave(self) -> None:
        self.player_screen.leaving()
        self.act(Leave(self.player_screen.unsent))

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen.active_bindings.values()))

    def _handle_exception(self, error: Exception) -> None:
        """End the application after an unexpected error, which the command line reports afterwards."""
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Print no traceback, which would contain the values of variables."""
        self._close_messages_no_wait()


class TextualInterface:
    """Plays in a Textual application (implements `sweet.rollouts.play.seat.Interface`).

    Args:
        run: whose screenshots are shown.
        title: what is shown until the first situation.
        made: called with the application, before it runs.
    """

    def __init__(self, run: Run, title: str, made: Callable[[PlayApp], None] | None = None) -> None:
        self._run, self._title, self._made = run, title, made
        self._app: PlayApp | None = None

    def run(self, play: Play) -> None:
        self._app = app = PlayApp(self._run, play, self._title)
        if self._made is not None:
            self._made(app)
        app.run()
        if app.failure is not None:
            raise app.failure

    def begin(self, table: Table) -> None:
        assert self._app is not None
        self._app.player_screen.begin(table)

    def show(self, situation: Situation) -> None:
        assert self._app is not None
        self._app.player_screen.show(situation)

    def say(self, text: str) -> None:
        if self._app is not None:
            show_message(self._app, text)
