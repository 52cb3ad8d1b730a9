"""Work that goes on without the terminal: it leads a session of its own, and errors before it begins are shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.runs.process import process_mark
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.cli.conftest import Program
from tests.cli.processes import PROGRAM, misbehaving
from tests.cli.processes import sweet as called
from tests.cli.test_commands import row
from tests.cli.test_follow import tasks

__all__ = ["tasks"]


@contextmanager
def ended_at_last(shown: dict[str, Any]) -> Iterator[None]:
    """Kill a detached process at the end of the block, if it still runs then."""
    mark = process_mark(shown["pid"])
    try:
        yield
    finally:
        if mark and process_mark(shown["pid"]) == mark:
            os.kill(shown["pid"], signal.SIGKILL)


def wait_for_end(pid: int) -> None:
    limit = time.monotonic() + 60
    while True:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                assert time.monotonic() < limit
                time.sleep(0.02)
                continue
        return


@pytest.fixture
def imported(workplace: Path) -> Run:
    file = workplace / "in.jsonl"
    file.write_text("".join(json.dumps(row(name, None)) + "\n" for name in "ab"))
    run_data_import(file, Path("runs/r"), DataImportConfig(), Silent())
    return Run(Path("runs/r"))


def test_a_rollout_goes_on_alone_until_it_is_stopped(workplace: Path, tasks: Path) -> None:
    def as_a_background_job() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with misbehaving("wait") as server:
        sides = ["--agent", "m", "--agent-url", server.url, "--sim", "m", "--sim-url", server.url]
        words = ["rollout", "runs/new", "--tasks", str(tasks), *sides, "--json", "--notify", "off"]
        environment = os.environ | {"SWEET_ROLLOUT_DETACH": "1"}
        begun = subprocess.run(
            [*PROGRAM, *words], capture_output=True, env=environment, preexec_fn=as_a_background_job, check=False
        )
        assert begun.returncode == 0, begun.stderr
        shown = json.loads(begun.stdout)
        with ended_at_last(shown):
            assert shown["attempt"] == "rollout-1"
            assert shown["stop"] == f"kill -INT {shown['pid']}"
            assert os.getsid(shown["pid"]) == shown["pid"] != os.getsid(0), "no hangup of the terminal reaches it"
            assert Run.open("runs/new").manifest().attempts[0].pid == shown["pid"]
            assert server.request_received.wait(60)
            for _ in range(2):
                os.kill(shown["pid"], signal.SIGINT)
                time.sleep(0.3)
            followed = called(*shown["follow"].split()[1:])
            assert followed.returncode == 130, followed.stderr
            wait_for_end(shown["pid"])
    assert "Stopping 3 dialogues" in Path(shown["log"]).read_text()
    assert json.loads(Path(shown["result"]).read_text())["exit_code"] == 130


def test_the_result_is_in_the_run(imported: Run) -> None:
    begun = called("eval", "runs/r", "--sandbox", "unsafe", "--detach", "--quiet")
    assert begun.returncode == 0, begun.stderr
    assert "follow: sweet status runs/r --follow" in begun.stdout
    assert called("status", "runs/r", "--follow").returncode == 0
    pid = imported.manifest().attempts[-1].pid
    wait_for_end(pid)
    result = json.loads(Path("runs/r/logs/detached-1.json").read_text())
    assert result["metrics"]["trajectories"] == 2
    assert f"process {pid}" in begun.stdout


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_errors_before_the_work_begins_are_those_of_the_call(imported: Run, flags: tuple[str, ...]) -> None:
    failed = called("pair", "runs/r", "--detach", *flags)
    assert failed.returncode == 2
    assert "pair needs candidates" in failed.stderr
    assert "sweet rank runs/r" in failed.stderr
    assert (json.loads(failed.stdout)["exit_code"] == 2) if flags else (failed.stdout == "")
    assert not list(Path("runs/r/logs").glob("detached-*"))


def test_a_new_run_without_content_is_deleted(workplace: Path) -> None:
    failed = called("rollout", "runs/new", "--tasks", "nowhere.jsonl", "--detach")
    assert failed.returncode == 2
    assert "nowhere.jsonl" in failed.stderr
    assert not Path("runs/new").exists()


def test_a_call_that_is_wrong_starts_nothing(sweet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.cli.stage.detach", None)
    assert sweet("rollout", "runs/new", "--samples", "x", "--detach").code == 2
    assert sweet("status", "--detach").code == 2
    outcome = sweet("rollout", "runs/new", "--dry-run", "--quiet", "--num-tasks", "1", "--json", "--detach")
    assert outcome.code == 0, "a plan is made here"


def test_modules_of_the_folder_are_not_imported(imported: Run) -> None:
    Path("sweet.py").write_text("raise SystemExit('wrong module')")
    # -P here too: without it this interpreter, where it is not forked, would import the file before it detaches.
    command = [sys.executable, "-P", "-m", "sweet", "eval", "runs/r", "--sandbox", "unsafe", "--detach", "--json"]
    begun = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert begun.returncode == 0, begun.stderr
    wait_for_end(json.loads(begun.stdout)["pid"])
