"""`sweet play --plain`: the dialogue as lines on stdout, messages and commands as lines of stdin.

A message is one line, or several between two lines that are `FENCE`. A line that begins with `/` is a command. The next
line is read when the person's turn has come, so that a script may write all lines at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading

from sweet.cli import console
from sweet.gathering import run_main
from sweet.rollouts.play.interface import Action, Actions, Play, Situation, State
from sweet.rollouts.play.typed import LONGEST

FENCE = '"""'
COMMANDS = {
    "/undo": Action("undo"),
    "/skip": Action("skip"),
    "/next": Action("next"),
    "/again": Action("retry"),
    "/leave": Action("leave"),
}
HELP = {
    "human": f"One line is a message; {FENCE} begins and ends one of several lines. /undo /skip /next /again /leave",
    "agent": f"One line is a message; {FENCE} begins and ends one of several lines; /answer delivers the next one. "
    "/undo /skip /next /again /leave",
}


class LineInterface:
    """Plays with lines (implements `sweet.rollouts.play.interface.Interface`)."""

    def __init__(self) -> None:
        self._shown = 0
        self._task = ""
        self._state: State = "waiting"
        self._wanted = threading.Event()

    def run(self, play: Play) -> None:
        async def work() -> None:
            actions: Actions = asyncio.Queue()
            loop = asyncio.get_running_loop()
            reader = threading.Thread(target=self._read, args=(loop, actions), daemon=True)
            reader.start()
            await play(actions)

        run_main(work())

    def show(self, situation: Situation) -> None:
        session = situation.session
        if not self._task:
            _print(f"{session.name}, you are the {session.role}. {HELP[session.role]}")
        if situation.task.id != self._task:
            self._task, self._shown = situation.task.id, 0
            _print(f"--- {situation.number} of {situation.total}: {situation.task.id}")
            if session.role == "human":
                _print(f"only you know:\n{situation.task.hidden}")
        self._shown = min(self._shown, len(situation.turns))
        for turn in situation.turns[self._shown :]:
            _print(f"{'human' if turn.role == 'user' else 'agent'}: {turn.content}")
        self._shown = len(situation.turns)
        if situation.notice:
            _print(f"error: {situation.notice} /again asks again.")
        if situation.state == "yours":
            _print(f"undone: {situation.draft}\nyour turn:" if situation.draft else "your turn:")
        elif situation.ended is not None:
            _print(f"ended ({situation.ended.outcome}), answer: {situation.ended.answer}\n/next goes on:")
        self._state = situation.state
        self._want()

    def say(self, text: str) -> None:
        _print(text)
        self._want()

    def _want(self) -> None:
        if self._state != "waiting":
            self._wanted.set()

    def _read(self, loop: asyncio.AbstractEventLoop, actions: Actions) -> None:
        """Turn the lines of stdin into actions; its end leaves."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            deliver = False
            while self._wanted.wait() and (line := sys.stdin.readline(_LONGEST)):
                text = line.rstrip("\n")
                if text == "/answer":
                    deliver = True
                    continue
                action = COMMANDS.get(text)
                if action is None and text.startswith("/"):
                    _print(f"There is no such command. {HELP['agent' if deliver else 'human']}")
                    continue
                if action is None:
                    action = Action("deliver" if deliver else "send", _several() if text == FENCE else text)
                    deliver = False
                self._wanted.clear()
                loop.call_soon_threadsafe(actions.put_nowait, action)
            loop.call_soon_threadsafe(actions.put_nowait, Action("leave"))


_LONGEST = 2 * max(LONGEST.values())


def _several() -> str:
    """Return the lines up to the closing mark; no more are kept than are too many for a message."""
    lines: list[str] = []
    size = 0
    while (line := sys.stdin.readline(_LONGEST)) and line.rstrip("\n") != FENCE:
        size += len(line)
        if size <= _LONGEST:
            lines.append(line)
    return "".join(lines)


def _print(text: str) -> None:
    console.show(console.safe_text(text))
    sys.stdout.flush()
