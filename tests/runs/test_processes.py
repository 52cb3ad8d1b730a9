"""Two processes on one run, and processes that are killed, for real."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweet.inspection.status import report
from sweet.runs.jsonl import JsonlWriter, read_rows
from sweet.runs.process import host, is_gone, process_mark
from sweet.runs.run import Run
from tests import programs
from tests.runs.conftest import Settings

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and fork of POSIX")


def start(*arguments: object, child: bool = False) -> subprocess.Popen[str]:
    """Start a victim; `child`: as a child of this process, which is a zombie when it is dead."""
    words = ["-m", "tests.runs.victims", *map(str, arguments)]
    options: dict[str, Any] = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], **options) if child else programs.start(words, **options)


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_kill_before_any_event_loses_nothing(tmp_path: Path) -> None:
    with start("kill-everywhere", tmp_path) as process:
        out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert int(out) > 60, "so many events were tried"


def test_a_kill_at_any_time_loses_nothing(tmp_path: Path) -> None:
    path, rows, dice = tmp_path / "run", 150, random.Random(0)
    sizes: list[int] = []
    for _ in range(4):
        with start("slow", path, rows) as process:
            wait_until_ready(process)
            time.sleep(dice.uniform(0, 0.08))
            kill(process)
        file = path / "rollouts" / "rollouts-1.jsonl"
        sizes.append(file.read_bytes().count(b"\n") if file.exists() else 0)
    with start("slow", path, rows) as process:
        process.communicate()
    assert process.returncode == 0
    assert sizes == sorted(sizes)
    run = Run.open(path)
    artifact = run.find("rollouts", needed_by="eval")
    assert (artifact.id, artifact.rows) == ("rollouts-1", rows)
    assert [row["id"] for _, row in read_rows(run.file(artifact))] == list(range(rows))


def test_processes_share_a_run(tmp_path: Path) -> None:
    path, names, count = tmp_path / "run", "abc", 6
    processes = [start("many", path, name, count) for name in names]
    read = 0
    while any(process.poll() is None for process in processes):
        if (path / "manifest.json").exists():
            read += len(Run.open(path).manifest().artifacts) > 0
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert read > 0, "a manifest is whole whenever it is read"
    run = Run.open(path)
    manifest = run.manifest()
    assert [attempt.status for attempt in manifest.attempts] == ["done"] * len(names) * count
    texts = [run.file(artifact).read_text() for artifact in manifest.artifacts]
    assert sorted(texts) == sorted(f'{{"by": "{name}-{number}"}}\n' for name in names for number in range(count))
    assert all(run.stale(artifact) is None for artifact in manifest.artifacts)


def test_what_a_live_process_writes_is_its_own_until_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with start("hold", path, child=True) as holder:
        wait_until_ready(holder)
        run = Run.open(path)
        assert report(run).attempts[0].status == "running"
        with start("hold", path) as other:
            out, _ = other.communicate()
        assert (other.returncode, f"being written by rollout-1, pid {holder.pid}" in out) == (2, True)
        holder.send_signal(signal.SIGKILL)
        while not is_gone(holder.pid, host(), run.manifest().attempts[0].process):
            time.sleep(0.01)
        assert report(run).attempts[0].status == "interrupted (died)", "a zombie is dead"
        holder.communicate()
    shown = report(run)
    assert shown.attempts[0].status == "interrupted (died)"
    assert f"process {holder.pid}" in (shown.attempts[0].error or "")
    assert (shown.artifacts[0].status, shown.next[0]) == ("partial", f"sweet rollout {path} --resume")
    with run.attempt("rollout", Settings()) as attempt:
        draft = attempt.start_artifact("rollouts", resume=True)
        with JsonlWriter(draft.path) as writer:
            writer.write({"id": 1})
        attempt.finish_artifact(draft, rows=writer.rows)
    assert [row["id"] for _, row in read_rows(draft.path)] == [0, 1], "the torn line was cut"
    assert [attempt.status for attempt in run.manifest().attempts] == ["interrupted", "failed", "done"]


def test_a_pid_that_was_used_again_is_another_process() -> None:
    mark = process_mark(os.getpid())
    assert not is_gone(os.getpid(), host(), mark)
    assert not is_gone(os.getpid(), "another-host", "x/y/1")
    if mark:
        boot, namespace, started = mark.rsplit("/", 2)
        assert is_gone(os.getpid(), host(), f"{boot}/{namespace}/{int(started) - 1}")
        assert is_gone(os.getpid(), host(), f"earlier/{namespace}/{started}")
        assert not is_gone(2**22 + 1, host(), f"{boot}/pid:[1]/1"), "another container's pids mean nothing here"
    assert is_gone(2**22 + 1, host(), "")
    assert not is_gone(os.getpid(), host(), "")
