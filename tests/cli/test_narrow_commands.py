"""Commands to be copied are on one line, however narrow the terminal is."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest

from sweet.cli import console
from sweet.errors import UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from sweet.scoring.config import EvalConfig
from tests.cli.conftest import Program

COMMAND = "sweet rollout runs/a-run-with-a-long-name --tasks tasks/of-our-own.jsonl --split test --samples 16 --seed 3"


@pytest.mark.parametrize("width", [20, 80, 108, 120])
def test_the_fix_of_an_error_is_one_line(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    console.show_error(UsageError("Something is missing.", where="here", fix=COMMAND))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "sweet" in line]
    assert COMMAND in line
    assert line.startswith("│") is (width >= len(f"try    {COMMAND}") + 4)


def test_the_next_commands_are_one_line_each(sweet: Program, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = Run.create("runs/a-run-with-a-long-name")
    words = ["--tasks", "micro", "--num-tasks", "2", "--split", "test", "--max-turns", "1", "--max-tokens", "8"]
    outcome = sweet("rollout", str(run.path), *words)
    assert outcome.code == 0, outcome.err
    scored = sweet("eval", str(run.path), "--sandbox", "unsafe", "--workers", "1")
    command = f"sweet rollout {run.path} --tasks micro --max-tokens 8 --num-tasks 2 --max-turns 1 --samples 4"
    assert len(command) > 80
    assert f"next: {command}\n" in scored.err
    assert f"next: {command}\n" in sweet("status", str(run.path)).out


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_gets_the_command_without_a_line_break(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("rollout", RolloutConfig(tasks="x" * 90 + ".jsonl", samples=2)) as attempt:
        draft = attempt.start_artifact("rollouts", meta={"split": "train", "samples": 2})
        draft.path.write_text("{}\n")
        rollouts = attempt.finish_artifact(draft, rows=1)
    run.file(rollouts).unlink()
    with run.attempt("eval", EvalConfig()):
        pass
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    environment.pop("COLUMNS", None)
    words = [sys.executable, "-m", "sweet", "status", str(run.path)]
    process = subprocess.Popen(words, stdout=child, stderr=child, stdin=child, env=environment)
    os.close(child)
    shown = b""
    while select.select([parent], [], [], 60)[0]:
        try:
            shown += os.read(parent, 65536)
        except OSError:  # the terminal's last writer has ended
            break
    os.close(parent)
    assert process.wait(timeout=60) == 0
    commands = [
        line for line in re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).split("\r\n") if line.startswith("next: ")
    ]
    assert commands == [f"next: sweet rollout {run.path} --tasks {'x' * 90}.jsonl --samples 2"]
