"""The application of `sweet play`: runs the player in its event loop, draws situations, and passes on what is done.

It implements `sweet.rollouts.play.interface.Interface`. The dialogue is above, the editor below, the keys at the
bottom. Text of models, tasks and persons is drawn literally.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import TextArea

from sweet.rollouts.play.interface import Action, ActionName, Play, Session, Situation
from sweet.rollouts.play.typed import LONGEST, cleaned
from sweet.runs.run import Run
from sweet.units import count
from sweet.view.app.frame import Facts, Keys, TerminalApp, hide_keys, show_message
from sweet.view.app.parts_view import PartsView
from sweet.view.code import plain
from sweet.view.dialogue_view import DisplayOptions, hidden_parts
from sweet.view.parts import Part, Pictures
from sweet.view.run_screenshots import RunScreenshots

STATES = {
    "yours": "your turn",
    "waiting": "waiting for the other side",
    "finished": "the dialogue has ended",
    "failed": "the other side could not answer",
}
ENDS = {
    "answered": "The agent has delivered its answer.",
    "out_of_turns": "All turns are used up; the agent's last message is its answer.",
    "human_error": "The human could not go on.",
    "context_overflow": "The dialogue does not fit into the model's context any more.",
    "token_limit": "The dialogue has used up its tokens.",
}
LETTERS = frozenset({"next", "retry", "write", "undo", "skip", "hidden", "leave"})
"""Actions whose keys are letters."""


class TextualInterface:
    """Plays in a Textual application (implements `sweet.rollouts.play.interface.Interface`).

    Args:
        run: whose screenshots are shown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._app: PlayApp | None = None

    def run(self, play: Play) -> None:
        self._app = app = PlayApp(self._run, play)
        app.run()
        if app.failure is not None:
            raise app.failure

    def show(self, situation: Situation) -> None:
        assert self._app is not None
        self._app.player_screen.show(situation)

    def say(self, text: str) -> None:
        if self._app is not None:
            show_message(self._app, text)


class PlayApp(TerminalApp):
    """Plays until the player ends."""

    TITLE = "sweet play"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "keys", key_display="F1", tooltip="this list", priority=True),
        Binding("question_mark", "help", "keys", show=False, tooltip="this list"),
        Binding("ctrl+q", "leave", "leave", key_display="^q", tooltip="leave; the dialogue is saved"),
        Binding("ctrl+c", "leave", show=False, priority=True),
    ]

    def __init__(self, run: Run, play: Play) -> None:
        super().__init__()
        self.actions: asyncio.Queue[Action] = asyncio.Queue()
        self.player_screen = PlayScreen(run, self.actions.put_nowait)
        self._play = play
        self._playing: asyncio.Task[None] | None = None

    def get_default_screen(self) -> Screen[None]:
        return self.player_screen

    def on_ready(self) -> None:
        self._playing = asyncio.create_task(self._run_play())

    async def _run_play(self) -> None:
        await asyncio.sleep(0.05)  # the first screen is drawn before a model is loaded, which blocks
        try:
            await self._play(self.actions)
        except Exception as error:
            self.failure = self.failure or error
        self.exit()

    async def on_unmount(self) -> None:
        """Let the player close what it has opened, whatever ended the application."""
        if self._playing is not None:
            self._playing.cancel()
            await asyncio.wait([self._playing])

    def action_leave(self) -> None:
        self.player_screen.leave()


class Editor(TextArea):
    """The field in which a person writes. What is pasted loses its control characters before it is drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.read", "read", tooltip="the dialogue; i writes")]

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, tab_behavior="indent", compact=True, theme="css", highlight_cursor_line=False)
        self.longest = max(LONGEST.values())

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a pasted text, or refuse it if it is longer than a message may be."""
        text = cleaned(event.text)
        if len(text) + len(self.text) > self.longest:
            event.prevent_default()
            event.stop()
            what = f"not pasted: {len(text):,} characters, and a message has at most {self.longest:,}"
            show_message(self.app, what, error=True)
            return
        event.text = text  # the handler of the base class, which is called next, inserts it


class PlayScreen(Screen[None]):
    """Shows a situation. Keys are letters while the dialogue is read, and combinations while a message is written.

    The combinations have no priority: they reach the screen through the editor, after the letters before them.

    Args:
        act: called with each action.
    """

    DEFAULT_CSS = """
    PlayScreen Editor { height: 7; border: none; border-top: solid ansi_bright_black; padding: 0 1;
        background: ansi_default; color: ansi_default; }
    PlayScreen.-low Editor { height: 4; }
    PlayScreen Editor .text-area--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "act('send')", "send", key_display="^s", tooltip="send the message"),
        Binding("ctrl+g", "act('deliver')", "answer", key_display="^g", tooltip="deliver it as the answer"),
        Binding("n,enter", "act('next')", "next", tooltip="keep the dialogue and go on"),
        Binding("r", "act('retry')", "again", tooltip="ask the other side again"),
        Binding("i", "write", "write", tooltip="write a message"),
        Binding("u", "act('undo')", "undo", tooltip="back to your last message"),
        Binding("s", "act('skip')", "skip", tooltip="go on without this dialogue"),
        Binding("h", "hidden", "hidden", tooltip="show or hide what only you know"),
        Binding("q", "leave", "leave", show=False, tooltip="leave; the dialogue is saved"),
    ]

    def __init__(self, run: Run, act: Callable[[Action], None]) -> None:
        super().__init__()
        self._run_directory, self._act = run, act
        self.view = PartsView()
        self.situation: Situation | None = None
        self.hidden = True
        self._screenshots: RunScreenshots | None = None
        self._to_skip: Situation | None = None

    def compose(self) -> ComposeResult:
        yield Facts()
        yield self.view
        yield Editor()
        yield Keys()

    def on_mount(self) -> None:
        self.editor.focus()  # what is typed before the dialogue is shown is text too
        self.query_one(Facts).set_facts([f"sweet play, {self._run_directory.path}", "the other side is being prepared"])

    @property
    def editor(self) -> Editor:
        return self.query_one(Editor)

    def show(self, situation: Situation) -> None:
        """Draw a situation. The text in the editor stays until it was sent."""
        before, self.situation = self.situation, situation
        session, editor = situation.session, self.editor
        if before is None:
            editor.longest = LONGEST[session.role]
            if session.kind.visual:
                self._screenshots = RunScreenshots(
                    self._run_directory, session.kind, session.protocol, settings=session.settings
                )
        elif before.state == "yours":
            editor.text = ""
        if situation.draft:
            editor.text = situation.draft
            editor.move_cursor(editor.document.end)
        hidden, editor.display = not editor.display, situation.state in ("yours", "waiting")
        if situation.state == "yours" or (editor.display and hidden):
            editor.focus()
        elif not editor.display:
            self.view.focus()
        self.redraw(situation)
        self.refresh_bindings()

    def redraw(self, situation: Situation) -> None:
        self.query_one(Facts).set_facts(self._facts(situation))
        parts = situation_parts(situation, self._screenshots, hidden=self.hidden)
        self.call_later(self.view.show, parts, end=True)

    def _facts(self, situation: Situation) -> Iterator[str | Text]:
        session, yours = situation.session, situation.state == "yours"
        yield Text(f"{situation.number:,} of {situation.total:,}", "bold")
        yield situation.task.id
        yield f"{session.name}, you are the {session.role}"
        spoken = sum(turn.role == "assistant" for turn in situation.turns) + (yours and session.role == "agent")
        yield f"turn {max(spoken, 1)} of {session.max_turns}"
        if session.role == "agent" and yours and spoken == session.max_turns:
            yield Text("your last turn: the text is the answer", "bold yellow")
        yield Text(STATES[situation.state], "bold green" if yours else "bold")
        if yours and len(self.editor.text) > LONGEST[session.role]:
            yield Text(f"too long: {count(len(self.editor.text), 'character')}", "bold red")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is possible now; the letters belong to the editor while it has the focus."""
        state = None if self.situation is None else self.situation.state
        session: Session | None = None if self.situation is None else self.situation.session
        is_agent = session is not None and session.role == "agent"
        name = str(parameters[0]) if action == "act" else action
        if name in LETTERS and self.focused is self.editor:
            return False
        possible = {
            "send": state == "yours",
            "deliver": state == "yours" and is_agent,
            "next": state == "finished",
            "retry": state == "failed",
            "write": state in ("yours", "waiting"),
            "undo": state is not None,
            "skip": state is not None,
            "hidden": not is_agent,
        }
        return possible.get(name, True)

    def on_descendant_focus(self) -> None:
        self.refresh_bindings()

    def on_descendant_blur(self) -> None:
        self.refresh_bindings()

    def leave(self) -> None:
        """Ask the player to end, and show that the application ends as soon as the other side is closed."""
        yours = self.situation is not None and self.situation.state == "yours"
        self._act(Action("leave", self.editor.text if yours else None))
        self.query_one(Facts).set_facts(["leaving"])

    def action_leave(self) -> None:
        if not hide_keys(self):
            self.leave()

    def action_act(self, name: ActionName) -> None:
        """Pass an action on. What would be lost with a dialogue that is skipped is asked for by a second key."""
        if name == "skip" and self._to_skip is not self.situation:
            self._to_skip = self.situation
            show_message(self.app, "s again goes on without this dialogue, which is not kept")
            return
        self._act(Action(name, self.editor.text if name in ("send", "deliver") else None))

    def action_read(self) -> None:
        self.view.focus()

    def action_write(self) -> None:
        self.editor.focus()

    def action_hidden(self) -> None:
        self.hidden = not self.hidden
        if self.situation is not None:
            self.redraw(self.situation)


def situation_parts(situation: Situation, screenshots: RunScreenshots | None, *, hidden: bool) -> list[Part]:
    """Return what is shown of a situation.

    Args:
        hidden: show a person who plays the human the hidden information.
    """
    session = situation.session
    options = DisplayOptions(session.kind, session.protocol)
    shows_hidden = hidden and session.role == "human"
    parts = list(hidden_parts(situation.task, options, "only you know")) if shows_hidden else []
    number = 0
    for index, turn in enumerate(situation.turns):
        number += turn.role == "assistant"
        side = "human" if turn.role == "user" else f"agent {number}"
        title = Text(side, "bold cyan" if turn.role == "user" else "bold green")
        if (turn.role == "user") == (session.role == "human") and index:
            title.append(" (you)", "dim")
        parts.append(Part("turn", title, partial(options.text, turn.content), index))
    if screenshots is not None and number:
        find = partial(_pictures, situation, screenshots)
        parts.append(Part("screenshots", Text("screenshots", style="bold magenta"), pictures=find))
    if situation.ended is not None:
        ended = situation.ended
        body = partial(options.text, ended.answer, whole=True)
        text = ENDS.get(ended.outcome, ended.outcome) + (f" {ended.error}" if ended.error else "")
        parts.append(Part("answer", Text("answer", "bold magenta"), body))
        parts.append(Part("end", Text("end", "bold yellow"), partial(plain, text)))
    if situation.notice:
        parts.append(Part("notice", Text("error", "bold red"), partial(plain, situation.notice)))
    return parts


def _pictures(situation: Situation, screenshots: RunScreenshots) -> Pictures:
    """Return the agent's last page, beside the reference page for a person who plays the human."""
    last = next(turn for turn in reversed(situation.turns) if turn.role == "assistant")
    pictures = [("the agent's page", screenshots.turn_picture(last))]
    if situation.session.role == "human":
        pictures.append(("the reference page", screenshots.page_picture(situation.task.ground_truth)))
    return pictures
