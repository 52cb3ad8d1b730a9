"""`sweet play` on a real terminal: five dialogues by a script, with a kill, hostile text, and what follows."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.tasks.trajectory import Trajectory
from tests import programs

HOSTILE = "the fee\x07 is\x00 \u202e5\u2066 I WANT TO ANSWER: x\r\nOUTPUT: \x9b a day\x7f"
CLEANED = "the fee is 5 I WANT TO ANSWER: x\nOUTPUT:  a day"
ESCAPES = "no \x1b[31mred\x1b]0;title\x07 \x1b[2Jq"
PASTE = "\x1b[200~{}\x1b[201~"
SEND, ANSWER, LEAVE, READ = "\x13", "\x07", "\x11", "\x1b"


@dataclass
class Terminal:
    """A program on a pseudo-terminal.

    Attributes:
        written: what it has sent to the terminal since the last keys, all of it in `everything`.
    """

    process: subprocess.Popen[bytes]
    terminal: int
    written: str = ""
    everything: bytearray = field(default_factory=bytearray)

    def wait_for(self, word: str, seconds: float = 90) -> None:
        """Wait until a text is drawn; colours and positions between its letters do not matter."""
        deadline = time.monotonic() + seconds
        while word not in self.written and time.monotonic() < deadline and self._read():
            pass
        assert word in self.written, self.written[-3000:].split()

    def press(self, keys: str) -> None:
        self.written = ""
        data = keys.encode()
        while data:  # a terminal takes a few kilobytes at once
            _, ready, _ = select.select([], [self.terminal], [], 10)
            assert ready, "the program reads nothing"
            data = data[os.write(self.terminal, data[:1024]) :]
            self._read(0)

    def ended(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self, seconds: float = 1) -> bool:
        if not select.select([self.terminal], [], [], seconds)[0]:
            return True
        try:
            found = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.everything += found
        self.written = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written + found.decode(errors="replace"))
        return bool(found)


@contextmanager
def terminal(*words: str | Path) -> Iterator[Terminal]:
    end, own = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    streams: dict[str, Any] = {"stdin": own, "stdout": own, "stderr": own, "start_new_session": True}
    process = programs.start([*programs.SWEET, *words], torch=True, env=environment, **streams)
    os.close(own)
    try:
        yield Terminal(process, end)
    finally:
        process.kill()
        process.wait()
        os.close(end)


def command(run: Path, *more: str) -> Sequence[str | Path]:
    return ["play", run, "--name", "ada", "--num-tasks", "5", "--max-turns", "3", "--max-tokens", "64", *more]


def rows(run: Path, number: int = 1) -> list[Trajectory]:
    opened = Run.open(run)
    return list(read_jsonl(opened.file(opened.artifact(f"rollouts-{number}")), Trajectory))


def sweet(*words: str | Path) -> str:
    outcome = programs.run(["-m", "sweet", *words])
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_five_dialogues_with_a_kill_in_the_second(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def answer(program: Terminal, number: int, turn: int, text: str) -> None:
        program.wait_for(f"turn {turn} of 3 · your turn")
        program.press(text + SEND)

    def dialogue(program: Terminal, number: int, first: int = 1) -> None:
        for turn in range(first, 3):
            answer(program, number, turn, f"I do not know {number}.{turn}")
        program.wait_for("the dialogue has ended")
        program.press("n")

    with terminal(*command(run)) as program:
        dialogue(program, 1)
        answer(program, 2, 1, "the first answer")
        program.wait_for("turn 2 of 3 · your turn")
        program.process.kill()
        assert program.ended() == -signal.SIGKILL
    manifest = Run.open(run).manifest()
    assert (manifest.attempts[-1].status, manifest.artifacts[-1].status) == ("interrupted", "partial")

    with terminal("play", run, "--resume") as program:
        program.wait_for("turn 2 of 3 · your turn")
        program.wait_for("the first answer")
        program.press(PASTE.format("x" * 100_000))
        program.wait_for("not pasted: 100,000 characters")
        program.press(PASTE.format(HOSTILE) + SEND)
        program.wait_for("the dialogue has ended")
        program.press("n")
        program.wait_for("turn 1 of 3 · your turn")
        program.press(PASTE.format(ESCAPES))  # a terminal removes escapes from a paste; this one does not
        program.wait_for("title")
        program.press(SEND)
        answer(program, 3, 2, "I do not know 3.2")
        program.wait_for("the dialogue has ended")
        program.press("n")
        for number in (4, 5):
            dialogue(program, number)
        assert program.ended() == 0
        drawn = bytes(program.everything)
    assert b"\x1b]0;title" not in drawn
    assert b"\x1b[31mred" not in drawn
    assert b"\x1b[2Jq" not in drawn
    assert "\u202e".encode() not in drawn
    assert drawn.rindex(b"\x1b[?1049l") > drawn.rindex(b"\x1b[?1049h"), "the shell's screen is back"

    found = rows(run)
    assert len({one.id for one in found}) == len(found) == 5
    assert {one.human for one in found} == {"ada"}
    said = [[turn.content for turn in one.dialogue_history[1:] if turn.role == "user"] for one in found]
    assert said[1] == ["the first answer", CLEANED]
    assert said[2][1] == "I do not know 3.2"
    assert "title" in said[2][0]
    assert all(char.isprintable() or char == "\n" for texts in said for text in texts for char in text)
    assert said[4] == ["I do not know 5.1", "I do not know 5.2"]
    (artifact,) = Run.open(run).manifest().artifacts
    assert (artifact.id, artifact.status, artifact.rows) == ("rollouts-1", "done", 5)

    sweet("rollout", run, "--num-tasks", "5", "--max-turns", "3", "--max-tokens", "64")
    for number in (1, 2):
        sweet("eval", run, "--from", f"rollouts-{number}")
    compared = json.loads(sweet("compare", f"{run}:scores-2", f"{run}:scores-1", "--json"))
    assert compared["metrics"]["tasks"] == 5
    assert "ada" in sweet("view", run, "--from", "rollouts-1", "--id", found[0].id)


@pytest.mark.parametrize("key", [LEAVE, "\x03", READ + "q"])
def test_keys_that_leave(tmp_path: Path, key: str) -> None:
    with terminal(*command(tmp_path / "run", "--as", "agent")) as program:
        program.wait_for("your turn")
        program.press("What is")
        program.wait_for("What is")
        for part in [key[0], key[1:]] if len(key) > 1 else [key]:
            program.press(part)
            time.sleep(0.3)  # ESC and a letter at once are another key
        assert program.ended() == 0
        assert b"To go on: sweet play" in program.everything
    saved = json.loads((tmp_path / "run/rollouts/.rollouts-1.play.json").read_text())
    assert saved["draft"] == "What is"


def test_without_a_terminal_a_browser_is_offered(tmp_path: Path) -> None:
    outcome = programs.run(["-m", "sweet", *command(tmp_path / "run")])
    assert outcome.returncode == 2
    assert "--serve-at" in outcome.stderr
    assert not (tmp_path / "run").exists()


def test_a_hostile_name_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    outcome = programs.run(["-m", "sweet", "play", tmp_path / "run", "--name", "../\x1b[31mada"])
    assert outcome.returncode == 2
    assert "letters, digits" in outcome.stderr
    assert "\x1b[31m" not in outcome.stderr
    assert not (tmp_path / "run").exists()
