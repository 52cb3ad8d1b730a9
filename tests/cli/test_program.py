"""The program as a process: signals, pipes, and the files that it generates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from docs.tools.commands import COMPLETIONS, completion
from sweet.cli.app import run
from sweet.cli.group import Group, load
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
    specs = [load(name).spec for name in Group.names()]
    assert [f"{spec.name} {option.flag}" for spec in specs for option in spec.options if not option.help] == []
    assert [spec.name for spec in specs if not spec.examples] == []


@pytest.mark.parametrize(
    ("words", "names"), [(["--help"], Group.names()), (["data", "check", "tasks.jsonl", "-h"], ["data check"])]
)
def test_the_help_as_json_has_every_option(words: list[str], names: list[str], capsys: Any) -> None:
    assert run([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["commands"]
    specs = [load(name).spec for name in names]
    assert [one["command"] for one in shown] == [f"sweet {name}" for name in names]
    for one, spec in zip(shown, specs, strict=True):
        assert [option["flags"] for option in one["options"]] == [o.flags for o in (*spec.flags, *spec.common)]
        assert [option["default"] for option in one["options"]] == [o.default for o in (*spec.flags, *spec.common)]
        assert all(option["help"] for option in one["options"])
        assert len(one["examples"]) == len(spec.examples)


def test_an_interrupt_ends_with_130_and_the_command_to_resume(tmp_path: Path) -> None:
    program = """
import sys, time
from tests.cli import toy
from sweet.cli.app import run
def wait(run, config, reporter):
    reporter.say("waiting")
    time.sleep(60)
sys.exit(run(["play", "r", "--samples", "2"], toy.program(wait)))
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
    assert kept.read_text(encoding="utf-8") == completion(shell), "run: python -m docs.tools.commands"
