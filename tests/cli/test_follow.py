"""A stage that runs in another process is shown with its progress, and followed to its end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweet.cli.follow import progress_text
from sweet.inspection.status import attempt_to_follow, followed, report
from sweet.inspection.status_report import AttemptStatus
from sweet.runs.progress import AttemptProgress
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageConfig
from sweet.stages.live import LiveReporter
from tests.cli.conftest import Program
from tests.cli.processes import misbehaving, started
from tests.rollouts.mock_server import task_row

TASKS = 3


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task_row(number)) + "\n" for number in range(TASKS)))
    return path


@contextmanager
def waiting(run: Path, tasks: Path) -> Iterator[subprocess.Popen[str]]:
    """A rollout whose server never answers."""
    with misbehaving("wait") as server:
        sides = ["--agent", "m", "--agent-url", server.url, "--sim", "m", "--sim-url", server.url]
        with started(["rollout", str(run), "--tasks", str(tasks), *sides]) as program:
            try:
                assert server.request_received.wait(60)
                yield program
            finally:
                program.kill()
                program.communicate()


def running(run: Path) -> AttemptStatus:
    """The rollout, once it has written its progress."""
    limit = time.monotonic() + 60
    while True:
        (found,) = report(Run.open(run)).attempts
        if found.progress is not None and found.progress.title:
            return found
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_the_progress_is_shown_while_it_runs_and_only_then(tmp_path: Path, tasks: Path, sweet: Program) -> None:
    run = tmp_path / "run"
    with waiting(run, tasks) as program:
        progress = running(run).progress
        assert progress is not None
        assert (progress.title, progress.done, progress.total) == ("dialogues", 0, TASKS)
        assert "dialogues 0/3" in sweet("status", str(run)).out
        attempt = json.loads(sweet("status", str(run), "--json").out)["attempts"][0]
        assert (attempt["status"], attempt["progress"]["total"]) == ("running", TASKS)
        program.kill()
        program.wait()
        assert (run / "logs" / "rollout-1.progress.json").exists(), "a killed process does not remove it"
        (died,) = report(Run.open(run)).attempts
        assert (died.status, died.progress, died.exit_code) == ("interrupted (died)", None, None)
    with Run.open(run).attempt("label", StageConfig()):
        assert not (run / "logs" / "rollout-1.progress.json").exists(), "the next attempt does"


def test_a_stage_is_followed_to_its_end_and_its_exit_code(tmp_path: Path, tasks: Path) -> None:
    run = tmp_path / "run"
    with waiting(run, tasks) as program:
        running(run)
        with started(["status", str(run), "--follow"]) as follower:
            assert follower.stdout is not None
            line = follower.stdout.readline()
            assert line.startswith("rollout-1 ")
            assert "dialogues 0/3" in line
            for _ in range(2):
                program.send_signal(signal.SIGINT)
                time.sleep(0.2)
            out, err = follower.communicate(timeout=60)
        assert program.wait(60) == 130
    assert follower.returncode == 130, err
    assert "rollout-1 is interrupted: Stopped. Done: 0 dialogues; missing: 3." in " ".join(
        err.replace("│", " ").split()
    )
    assert "next: sweet rollout" in out


def test_what_has_ended_is_reported_at_once(tmp_path: Path, sweet: Program) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("label", StageConfig()) as attempt:
        attempt.metrics["pairs"] = 7
    outcome = sweet("status", str(run.path), "--follow")
    assert outcome.code == 0
    assert "pairs 7" in outcome.out
    with pytest.raises(ZeroDivisionError), run.attempt("label", StageConfig()):
        raise ZeroDivisionError("no")
    outcome = sweet("status", str(run.path), "--follow", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["attempts"][-1]["exit_code"] == 1
    assert "label-2 is failed: ZeroDivisionError: no" in outcome.err


def test_following_is_stopped_without_stopping_what_is_followed(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("label", StageConfig()):
        with started(["status", str(run.path), "--follow"]) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline().startswith("label-1 ")
            follower.send_signal(signal.SIGINT)
            _, err = follower.communicate(timeout=60)
        assert follower.returncode == 130
        assert "no longer follows label-1, which goes on" in " ".join(err.replace("│", " ").split())
        assert run.manifest().attempts[0].status == "running"


def test_an_empty_run_and_other_reports_cannot_be_followed(tmp_path: Path, sweet: Program) -> None:
    run = Run.create(tmp_path / "run")
    for words in ((), ("--schema",)):
        assert sweet("status", str(run.path), "--follow", *words).code == 2


def test_text_of_progress_moves_no_cursor(tmp_path: Path, sweet: Program) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("rollout", StageConfig()) as attempt:
        progress = AttemptProgress(title="\x1b[2J", total=2, figures={"\x1b": "\x07"}, changed="2026-01-01T00:00:00Z")
        attempt.progress_path.write_text(progress.model_dump_json())
        shown = sweet("status", str(run.path)).out
    assert "0/2" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
    left = [path.name for path in (run.path / "logs").iterdir()]
    assert left == ["rollout-1.log"], "the attempt removes the file when it ends"


def test_the_loop_within_which_a_stage_runs_is_followed(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with run.attempt("label", StageConfig()):
        pass
    with run.attempt("train", StageConfig()) as loop:
        live = LiveReporter(Silent(), loop)
        with (
            live.step("round 1: rank", {"success": "on test tasks: micro 6.4 %"}),
            run.attempt("rank", StageConfig()) as inner,
        ):
            assert attempt_to_follow(run) == loop.id
            found = followed(run, loop.id)
            assert [one.id for one in found] == [loop.id, inner.id]
            assert found[0].progress is not None
            assert progress_text(found[0].progress).plain == "round 1: rank · success on test tasks: micro 6.4 %"
    assert attempt_to_follow(run) == loop.id, "also when both have ended"
