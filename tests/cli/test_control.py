"""`sweet control` on stages that run in other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sweet.runs.process import process_mark
from sweet.runs.run import Run
from sweet.runs.store import Store
from sweet.stages.base import StageConfig
from tests import programs
from tests.cli.conftest import Program
from tests.cli.test_follow import running, tasks, waiting

__all__ = ["tasks"]


def edited(run: Run, edit: Callable[[dict[str, object]], object]) -> None:
    """Edit the first attempt of the manifest."""
    path = run.path / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest["attempts"][0])
    path.write_text(json.dumps(manifest))


def test_a_rollout_is_paused_limited_and_stopped(tmp_path: Path, tasks: Path, sweet: Program) -> None:
    run = tmp_path / "run"
    with waiting(run, tasks) as program:
        running(run)
        outcome = sweet("control", str(run), "pause")
        assert (outcome.code, "rollout-1 is paused" in outcome.out) == (0, True)
        assert "paused · dialogues 0/3" in sweet("status", str(run)).out
        answered = json.loads(sweet("control", str(run), "concurrency", "2", "--json").out)
        assert answered["metrics"]["attempt"] == "rollout-1"
        assert answered["metrics"]["answer"] == "At most 2 dialogues at once."
        outcome = sweet("control", str(run), "concurrency", "0")
        assert (outcome.code, "is from 1 to" in outcome.err) == (2, True)
        assert "goes on" in sweet("control", str(run), "resume", "--attempt", "rollout-1").out
        sweet("control", str(run), "pause")
        assert "as by Ctrl-C" in sweet("control", str(run), "stop").out
        assert program.wait(60) == 130, "in a pause nothing would come to its end, so it stops at once"
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["rollout-1.jsonl", "rollout-1.log"]
    outcome = sweet("control", str(run), "resume")
    assert (outcome.code, "Nothing runs in this run." in outcome.err) == (2, True)


def test_what_ignores_ctrl_c_is_terminated(tmp_path: Path, sweet: Program) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("label", StageConfig()):
        code = "import signal, time; signal.signal(2, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
        with programs.start(["-c", code], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            edited(run, lambda attempt: attempt.update(pid=other.pid, process=process_mark(other.pid)))
            assert sweet("control", str(run.path), "stop").code == 0
            assert other.wait(60) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("edit", "reason"),
    [({"host": "elsewhere"}, "runs on elsewhere"), ({"process": "boot/pid:[1]/2"}, "another container")],
)
def test_a_process_that_is_not_that_of_the_attempt_is_not_stopped(
    tmp_path: Path, sweet: Program, monkeypatch: pytest.MonkeyPatch, edit: dict[str, str], reason: str
) -> None:
    run = Run.create(tmp_path / "run")
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    with run.attempt("label", StageConfig()) as attempt:
        mark = process_mark(os.getpid())
        boot = {"process": f"{mark.split('/')[0]}/pid:[1]/2"} if "process" in edit else edit
        edited(run, lambda found: found.update(boot))
        outcome = sweet("control", str(run.path), "stop")
        edited(run, lambda found: found.update(process=mark))
        assert (outcome.code, sent) == (2, [])
        assert reason in " ".join(outcome.err.replace("│", " ").split())
        assert attempt.id == "label-1"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("pause",), "label-1 cannot be paused"),
        (("concurrency", "2"), "label-1 plays no dialogues"),
        (("concurrency",), "concurrency needs the number of dialogues"),
        (("pause", "now"), "pause has no value"),
        (("concurrency", "\x1b[2J"), "This is no value of concurrency"),
        (("stpo",), "Did you mean stop?"),
        (("pause", "--attempt", "label-2"), "label-2 does not run"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, sweet: Program, words: tuple[str, ...], reason: str) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("label", StageConfig()):
        outcome = sweet("control", str(run.path), *words)
        assert outcome.code == 2
        assert reason in " ".join(outcome.err.replace("│", " ").split())
        assert not list((run.path / "logs").glob("*.control.json"))


def test_an_answer_that_has_not_come_is_said_to_be_missing(tmp_path: Path, sweet: Program) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("train-critic", StageConfig()) as attempt:
        attempt.progress_path.write_text('{"accepts": ["pause"], "changed": "2026-01-01T00:00:00Z"}')
        outcome = sweet("control", str(run.path), "pause", "--wait", "0")
        assert outcome.code == 0
        assert "has not answered within 0 s" in outcome.out
        assert Store(run.path.absolute()).exists()
