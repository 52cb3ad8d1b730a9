"""The screen of `sweet play`: the dialogue above, the editor below, the keys at the bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sweet.rollouts.play.seat import Action, Again, Next, Say, Situation, Skip, Table, Undo
from sweet.rollouts.play.typed import LONGEST
from sweet.runs.run import Run
from sweet.units import count
from sweet.view.app.frame import Facts, Keys
from sweet.view.app.parts_view import PartsView
from sweet.view.app.play.editor import Editor
from sweet.view.app.play.play_parts import situation_parts
from sweet.view.run_screenshots import RunScreenshots

STATES = {
    "yours": "your turn",
    "waiting": "waiting for the other side",
    "finished": "the dialogue has ended",
    "failed": "the other side could not answer",
}


class PlayScreen(Screen[None]):
    """Shows a situation. Keys are letters while the dialogue is read, and combinations while a message is written.

    The combinations have no priority: they reach the screen through the editor, after the letters before them.

    Args:
        title: shown until the first situation.
        act: called with each action.
    """

    DEFAULT_CSS = """
    PlayScreen Editor { height: 7; border: none; border-top: solid ansi_bright_black; padding: 0 1;
        background: ansi_default; color: ansi_default; }
    PlayScreen.-low Editor { height: 4; }
    PlayScreen Editor .text-area--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "send", key_display="^s", tooltip="send the message"),
        Binding("ctrl+g", "deliver", "answer", key_display="^g", tooltip="deliver it as the answer"),
        Binding("n,enter", "next", "next", tooltip="keep the dialogue and go on"),
        Binding("r", "again", "again", tooltip="ask the other side again"),
        Binding("i", "write", "write", tooltip="write a message"),
        Binding("u", "undo_turn", "undo", tooltip="back to your last message"),
        Binding("s", "skip", "skip", tooltip="go on without this dialogue"),
        Binding("h", "hidden", "hidden", tooltip="show or hide what only you know"),
        Binding("j", "line(1)", "down", show=False),
        Binding("k", "line(-1)", "up", show=False),
        Binding("space", "page(1)", "a screen down", show=False),
        Binding("backspace", "page(-1)", "a screen up", show=False),
        Binding("q", "leave", "leave", show=False, tooltip="leave; the dialogue is saved"),
    ]

    def __init__(self, run: Run, title: str, act: Callable[[Action], None]) -> None:
        super().__init__()
        self.run_, self._title, self._act = run, title, act
        self.view = PartsView()
        self.table: Table | None = None
        self.situation: Situation | None = None
        self.hidden = True
        self._screenshots: RunScreenshots | None = None

    def compose(self) -> ComposeResult:
        yield Facts()
        yield self.view
        yield Editor(max(LONGEST.values()))
        yield Keys()

    def on_mount(self) -> None:
        self.editor.display = False
        self.view.focus()
        self.query_one(Facts).set_facts([self._title])

    @property
    def editor(self) -> Editor:
        return self.query_one(Editor)

    @property
    def unsent(self) -> str | None:
        """The text in the editor; None if it is not the person's turn."""
        yours = self.situation is not None and self.situation.state == "yours"
        return self.editor.text if yours else None

    def begin(self, table: Table) -> None:
        self.table = table
        self.editor.longest = LONGEST[table.seat]
        if table.kind.visual:
            self._screenshots = RunScreenshots(self.run_, table.kind, table.protocol, settings=table.settings)

    def show(self, situation: Situation) -> None:
        """Draw a situation. The text in the editor stays until it was sent."""
        before, self.situation = self.situation, situation
        editor = self.editor
        if before is not None and before.state == "yours":
            editor.text = ""
        if situation.draft:
            editor.text = situation.draft
            editor.move_cursor(editor.document.end)
        editor.display = situation.state in ("yours", "waiting")
        if situation.state == "yours":
            editor.focus()
        elif not editor.display:
            self.view.focus()
        self.redraw()
        self.refresh_bindings()

    def redraw(self) -> None:
        if self.table is None or self.situation is None:
            return
        self.query_one(Facts).set_facts(self._facts(self.table, self.situation))
        self.view.show(situation_parts(self.table, self.situation, self._screenshots, hidden=self.hidden))
        self.call_after_refresh(self._to_end)

    def _to_end(self) -> None:
        self.view.action_scroll_end()
        self.view.refresh()

    def _facts(self, table: Table, situation: Situation) -> Iterator[str | Text]:
        yield Text(f"{situation.number:,} of {situation.total:,}", "bold")
        yield situation.task.id
        yield f"{table.name}, you are the {table.seat}"
        turns = situation.agent_turns
        spoken = turns if situation.state != "yours" or table.seat == "human" else turns + 1
        yield f"turn {max(spoken, 1)} of {table.max_turns}"
        if table.seat == "agent" and situation.state == "yours" and spoken == table.max_turns:
            yield Text("your last turn: the text is the answer", "bold yellow")
        yield Text(STATES[situation.state], "bold green" if situation.state == "yours" else "bold")
        if self.unsent is not None and len(self.editor.text) > LONGEST[table.seat]:
            yield Text(f"too long: {count(len(self.editor.text), 'character')}", "bold red")

    def leaving(self) -> None:
        """Show that the application ends as soon as the other side is closed."""
        self.query_one(Facts).set_facts(["leaving"])

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is possible now; the letters belong to the editor while it has the focus."""
        state = None if self.situation is None else self.situation.state
        is_agent = self.table is not None and self.table.seat == "agent"
        letters = ("next", "again", "write", "undo_turn", "skip", "hidden", "line", "page", "leave")
        if action in letters and self.focused is self.editor:
            return False
        possible = {
            "send": state == "yours",
            "deliver": state == "yours" and is_agent,
            "next": state == "finished",
            "again": state == "failed",
            "write": state in ("yours", "waiting"),
            "undo_turn": state is not None,
            "skip": state is not None,
            "hidden": not is_agent,
        }
        return possible.get(action, True)

    def on_descendant_focus(self) -> None:
        self.refresh_bindings()

    def on_descendant_blur(self) -> None:
        self.refresh_bindings()

    async def action_leave(self) -> None:
        await self.run_action("app.leave")

    def action_send(self) -> None:
        self._act(Say(self.editor.text))

    def action_deliver(self) -> None:
        self._act(Say(self.editor.text, deliver=True))

    def action_next(self) -> None:
        self._act(Next())

    def action_again(self) -> None:
        self._act(Again())

    def action_undo_turn(self) -> None:
        self._act(Undo())

    def action_skip(self) -> None:
        self._act(Skip())

    def action_read(self) -> None:
        self.view.focus()

    def action_write(self) -> None:
        self.editor.focus()

    def action_hidden(self) -> None:
        self.hidden = not self.hidden
        self.redraw()

    def action_line(self, lines: int) -> None:
        self.view.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        self.view.scroll_relative(y=pages * max(self.view.size.height - 1, 1), animate=False)
