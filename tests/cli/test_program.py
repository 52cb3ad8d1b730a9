"""The program as a process: signals, pipes, and the files that it generates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sweet.cli.app import declarations
from sweet.cli.generated import COMPLETIONS, completion
from tests import programs

ROOT = Path(__file__).parents[2]


def sweet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweet", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_option_has_a_help_and_every_command_an_example() -> None:
    result = declarations()
    assert [f"{item.name} --{option.key}" for item in result for option in item.options if not option.help] == []
    assert [item.name for item in result if not item.examples] == []


def test_an_interrupt_ends_with_130_and_the_command_to_resume(tmp_path: Path) -> None:
    program = """
import sys, time
from tests.cli import toy
from sweet.cli.app import build, run
from sweet.cli.stage_command import StageCommand
def wait(run, config, reporter):
    reporter.say("waiting")
    time.sleep(60)
command = StageCommand(name="play", config=toy.PlayConfig, stage=wait, name_run=lambda c: ("code", "x"), summary="x")
sys.exit(run(["play", "r", "--samples", "2"], build([command])))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130
    assert "sweet play r --samples 2 --resume" in rest
    assert "Traceback" not in rest


def test_the_simulated_human_is_served_until_it_is_stopped() -> None:
    process = programs.start(
        [*programs.SWEET, "serve-sim", "--port", "0", "--json", "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    stdout = ""
    while not stdout.endswith("\n}\n") and (line := process.stdout.readline()):
        stdout += line
    url = json.loads(stdout)["metrics"]["url"]
    with urllib.request.urlopen(f"{url}/models", timeout=90) as answer:
        assert json.load(answer)["data"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_a_reader_that_exits_is_not_an_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sweet", "status", "--schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait()


def test_unknown_words_exit_with_2() -> None:
    result = sweet("rolout")
    assert result.returncode == 2
    assert "rollout" in result.stderr


@pytest.mark.parametrize("shell", sorted(COMPLETIONS))
def test_completion_files_are_what_the_program_generates(shell: str) -> None:
    kept = ROOT / "completions" / COMPLETIONS[shell]
    assert kept.read_text(encoding="utf-8") == completion(shell), "run: python -m sweet.cli.generated"
