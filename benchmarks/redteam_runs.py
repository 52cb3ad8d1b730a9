"""The process that starts the commands which benchmarks/redteam.py measures for run directories from a stranger.

Reads a request as JSON ({"name", "steps"}) and prints one JSON line for each step: a command of `sweet` on one run in
which something lies in the place of a file, or a file is cut. A command must end with an exit code that is documented,
without a bug; it must neither change nor show what lies outside of the run; and it must refuse a cut file that it
needs. Seconds, CPU time and peak memory are those of the command; where it is large, the memory of the same command on
the unchanged run is measured too, and `grown_mib` is the difference.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.nasty import NASTY, REFERENCE, TESTS
from benchmarks.redteam_answers import ADDRESS_SPACE
from sweet.runs.run import Run
from sweet.tasks.base import Task
from sweet.tasks.trajectory import dump
from tests.report_run import report_run, step
from tests.view.conftest import trajectory

COMMANDS: dict[str, tuple[str, ...]] = {
    "status": ("status", "RUN", "--json"),
    "view": ("view", "RUN", "--from", "rollouts-1", "--print", "--limit", "2"),
    "report": ("report", "RUN"),
    "eval": ("eval", "RUN", "--from", "rollouts-1"),
    "label": ("label", "RUN", "--from", "scores-1", "--allow-test"),
    "compare": ("compare", "RUN:scores-1", "RUN:scores-2"),
    "export": ("data", "export", "RUN", "--out", "RUN/exported.jsonl"),
}
STEPS = tuple(COMMANDS)
READS = {"eval": {"rollouts"}, "label": {"rollouts", "scores"}, "compare": {"scores"}}
"""Which artifacts a command cannot do without: cut, they end it."""
LIMIT = 50.0
"""Seconds for one command."""
LONG_TURNS = 100_000
PRIVATE = "private-7c1d5a"
LARGE_MIB = 150.0
"""Memory of a command from which it is compared with the usual memory."""
SPARSE = 3 * 2**30
"""Bytes of a file that is mostly a hole."""

PLACES = {
    "rollouts": "rollouts/rollouts-1.jsonl",
    "scores": "scores/scores-1.jsonl",
    "candidates": "candidates/candidates-1.jsonl",
    "manifest": "manifest.json",
    "report": "report.html",
    "log": "logs/train-critic-1.jsonl",
}
FOLDERS = {"rollouts-folder": "rollouts", "scores-folder": "scores", "logs-folder": "logs", "locks-folder": ".locks"}

Put = Callable[[Path, Path], None]


def link(path: Path, outside: Path) -> None:
    target = outside / "private"
    target.write_text(PRIVATE)
    path.symlink_to(target)


def link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def zeros(path: Path, _outside: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path, _outside: Path) -> None:
    os.mkfifo(path)


def listener(path: Path, _outside: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as named:
        named.bind(f"/proc/self/fd/{here}/{path.name}")  # the whole path may be too long for an address
    os.close(here)


def folder(path: Path, _outside: Path) -> None:
    path.mkdir()


def sparse(path: Path, _outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE)


PUTS: dict[str, Put] = {
    "link": link,
    "zeros": zeros,
    "pipe": pipe,
    "socket": listener,
    "folder": folder,
    "sparse": sparse,
}
FOLDER_PUTS: dict[str, Put] = {"link": link_to_folder, "pipe": pipe, "zeros": zeros}

CUTS: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda data: data[: len(data) // 2],
    "half-of-the-lines": lambda data: b"".join(data.splitlines(keepends=True)[: data.count(b"\n") // 2]),
    "empty": lambda _data: b"",
    "without-last-line-feed": lambda data: data[:-2],
    "line-twice": lambda data: data + data.splitlines(keepends=True)[-1],
    "nested": lambda data: b'{"a":' * 100_000 + b"\n" + data,
    "zeros-inside": lambda data: data[:100] + b"\0" * 1000 + data[100:],
}


def put_in_place(what: Put, place: str) -> Put:
    """Return the change that removes what is at a place of the run and puts something else there."""

    def change(run: Path, outside: Path) -> None:
        path = run / place
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        what(path, outside)

    return change


def cut_in_place(cut: Callable[[bytes], bytes], place: str) -> Put:
    def change(run: Path, _outside: Path) -> None:
        path = run / place
        path.write_bytes(cut(path.read_bytes()))

    return change


HOSTILE: dict[str, Put | int] = {
    "unchanged": lambda _run, _outside: None,
    **{f"{name}-{what}": put_in_place(PUTS[what], PLACES[name]) for name, what in product(PLACES, PUTS)},
    **{
        f"{name}-{what}": put_in_place(FOLDER_PUTS[what], FOLDERS[name]) for name, what in product(FOLDERS, FOLDER_PUTS)
    },
    **{
        f"{name}-{what}": cut_in_place(CUTS[what], PLACES[name])
        for name, what in product(("rollouts", "scores", "manifest"), CUTS)
    },
    "long-dialogue": 0,
    "nasty-answers-1000": 1_000,
    "nasty-answers-10000": 10_000,
}
"""The change of each class; a number is a run whose answers are the nasty ones, of this size, or one of which is in a
dialogue of `LONG_TURNS` turns."""


def main() -> None:
    spec: dict[str, Any] = json.load(sys.stdin)
    hostile = HOSTILE[spec["name"]]
    with tempfile.TemporaryDirectory(prefix="redteam-") as name:
        here = Path(name)
        honest, run, outside = here / "honest", here / "run", here / "outside"
        if isinstance(hostile, int):
            nasty_run(run, hostile)
            nasty_run(honest, 100)
        else:
            report_run(run)
            shutil.copytree(run, honest)
        outside.mkdir()
        if not isinstance(hostile, int):
            hostile(run, outside)
        before = listed(outside)
        for command in spec["steps"]:
            case = measured(COMMANDS[command], run)
            large = case["peak_rss_mib"] > LARGE_MIB
            usual = measured(COMMANDS[command], honest)["peak_rss_mib"] if large else case["peak_rss_mib"]
            case["grown_mib"] = round(max(0.0, case["peak_rss_mib"] - usual), 1)
            case["wrong"] += faults(spec["name"], command, case)
            if listed(outside) != before:
                case["wrong"].append("something outside of the run has changed")
            print(json.dumps({"step": command, **case}), flush=True)


def nasty_run(path: Path, size: int) -> None:
    """Make a run with a dialogue for each class of nasty answers, of this size; for 0 one with a long dialogue."""
    about = Task(id="task-0", problem_description="p", ground_truth=REFERENCE, test_cases=TESTS)
    rows = [dump(trajectory(n, task=about, answer=nasty.write(size))) for n, nasty in enumerate(NASTY if size else ())]
    if not size:
        rows = [dump(trajectory(n, task=about)) for n in range(2)]
        rows[0]["dialogue_history"] *= LONG_TURNS // len(rows[0]["dialogue_history"])
    agent = "a" if size else "micro"  # whose template renders the prompts of an export
    meta = {"task": "code", "tasks": "micro", "split": "test", "agent": agent, "sim": "scripted", "max_turns": 10}
    step(Run.create(path, task="code"), "rollout", "rollouts", rows, meta=meta)


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): ((found := path.lstat()).st_size, found.st_mtime_ns) for path in sorted(folder.rglob("*"))}


def measured(command: tuple[str, ...], run: Path) -> dict[str, Any]:
    """Run a command and return its cost, its exit code, its output, and what is wrong with those."""
    words = [sys.executable, "-m", "sweet", *(word.replace("RUN", str(run)) for word in command)]
    with tempfile.TemporaryFile() as shown:
        started = time.monotonic()
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=shown,
            stderr=shown,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
            start_new_session=True,
        )
        late = not ends(process)
        if late:
            os.killpg(process.pid, 9)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        shown.seek(0)
        text = shown.read(10 * 2**20).decode(errors="replace")
    wrong = [f"no end within {LIMIT:g} s"] if late else []
    if "This is a bug in sweet" in text or "Traceback" in text:
        wrong.append(f"a bug: {' '.join(text.split())[-400:]}")
    if not late and process.returncode not in (0, 1, 2, 3, 4):
        wrong.append(f"exit code {process.returncode}")
    if PRIVATE in text:
        wrong.append("it shows a file outside of the run")
    return {
        "wrong": wrong,
        "code": process.returncode,
        "seconds": round(time.monotonic() - started, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "peak_rss_mib": round(used.ru_maxrss / 1024, 1),
    }


def ends(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of a process, which is left to be reaped; return whether it came within the limit."""
    stop = time.monotonic() + LIMIT
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > stop:
            return False
        time.sleep(0.02)
    return True


def faults(name: str, command: str, case: dict[str, Any]) -> list[str]:
    """Return what is wrong with the exit code of a command on a run of this class."""
    place, _, what = name.partition("-")
    if name == "unchanged":
        return [f"exit code {case['code']}"] if case["code"] else []
    if place in ("nasty", "long"):
        if command in ("compare", "label"):  # the run has one evaluation, in which no dialogue is better than another
            return []
        return [f"exit code {case['code']} for dialogues whose answers are hostile"] if case["code"] else []
    if what in CUTS and place in READS.get(command, ()) and case["code"] == 0:
        return ["a file that is not the one that was finished was used"]
    return []


if __name__ == "__main__":
    main()
