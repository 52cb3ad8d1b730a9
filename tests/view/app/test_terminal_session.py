"""The application on a real terminal: output, keys, and exit."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from sweet.errors import Interrupted
from sweet.runs.run import Run
from tests.view.conftest import HOSTILE, made, trajectory


@dataclass
class Session:
    """A program on a pseudo-terminal.

    Attributes:
        written: all bytes that it has sent to the terminal.
    """

    child: int
    terminal: int
    written: bytes = b""

    def wait_for(self, word: str) -> None:
        deadline = time.monotonic() + 60
        while word.encode() not in self.written and time.monotonic() < deadline:
            self._read()
        assert word.encode() in self.written, self.written

    def press(self, keys: bytes) -> None:
        self.written = b""
        os.write(self.terminal, keys)

    def ended(self) -> int:
        """Wait for the exit code, reading the output until then."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def _read(self) -> bool:
        if not select.select([self.terminal], [], [], 1)[0]:
            return True
        try:
            found = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.written += found
        return bool(found)


@contextmanager
def session(run: Run, **environment: str) -> Iterator[Session]:
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **environment})
        os.execv(sys.executable, [sys.executable, "-m", "sweet", "view", str(run.path)])
    try:
        yield Session(child, terminal)
    finally:
        os.close(terminal)


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_keys_and_leaving(run: Run, key: bytes) -> None:
    with session(run) as program:
        program.wait_for("t005")
        assert b"\x1b[?1049h" in program.written
        program.press(b"o")
        program.wait_for("outcome=failed")
        program.press(key)
        assert program.ended() == 0
        assert b"\x1b[?1049l" in program.written, "the shell's screen is back"


def test_no_escape_of_a_model_reaches_the_terminal(run: Run) -> None:
    rows = [trajectory(n, id=f"a{n}{HOSTILE}") for n in range(3)]
    made(run, "rollout", "rollouts", rows, [], number=1)
    with session(run) as program:
        program.wait_for("a2")
        drawn = program.written
        program.press(b"\r")
        program.wait_for("back")
        drawn += program.written
        program.press(b"q")  # to the table
        program.wait_for("quit")
        drawn += program.written
        program.press(b"q")
        assert program.ended() == 0
        drawn += program.written
    assert b"\x1b[31mred" not in drawn
    assert b"]0;title" in drawn.replace("␛".encode(), b""), "it is drawn"
    assert b"\x1b]0;title" not in drawn
    assert "\u202e".encode() not in drawn


def test_a_terminal_that_cannot_move_its_cursor_is_printed_to(run: Run) -> None:
    with session(run, TERM="dumb") as program:
        assert program.ended() == 0
        assert b"t005" in program.written
        assert b"\x1b" not in program.written


def test_without_colours_none_is_sent(run: Run) -> None:
    with session(run, NO_COLOR="1") as program:
        program.wait_for("quit")
        program.press(b"o")
        program.wait_for("outcome=failed")
        program.press(b"q")
        assert program.ended() == 0
        colours = re.findall(rb"\x1b\[[\d;]*m", program.written)
        assert not [found for found in colours if re.search(rb"[\[;](3[0-7]|4[0-7]|9\d|10\d|38|48)[;m]", found)]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seen", ["\x1b[?1049h", "quit"])
def test_an_interrupt_from_outside_leaves_the_terminal_whole(run: Run, sent: signal.Signals, seen: str) -> None:
    """During the start of the application, and when it is running."""
    with session(run) as program:
        program.wait_for(seen)
        os.kill(program.child, sent)
        assert program.ended() == Interrupted.exit_code
        assert program.written.rindex(b"\x1b[?1049l") > program.written.rindex(b"\x1b[?1049h")
