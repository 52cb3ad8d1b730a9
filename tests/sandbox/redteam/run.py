"""Run every hostile answer under one tier, and print the results and anything left behind as one JSON object.

It is a separate process, so that it can run as another user, and so that any process that escapes a jail becomes its
child and is detected. Each hostile answer is scored as by `sweet eval`, and an honest one after it in the same zygote.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import secrets
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweet.sandbox import jail
from sweet.sandbox.pool import Sandbox, open_jails
from sweet.sandbox.program import Limits, Tier
from sweet.sandbox.resource_monitor import descendants
from sweet.sandbox.syscalls import FilterError
from sweet.tasks.base import Task
from sweet.tasks.code import reader
from sweet.tasks.code.scoring import CodeScorer
from sweet.tasks.scores import Verdict
from tests.sandbox.redteam.answers import Hostile
from tests.sandbox.redteam.cheats import CHEATS
from tests.sandbox.redteam.harm import HARM
from tests.sandbox.redteam.reach import CALLS, FILES, NETWORK, PROCESSES

ANSWERS = [*CHEATS, *HARM, *CALLS, *PROCESSES, *FILES, *NETWORK]
LIMITS = Limits(call_seconds=1.0, total_seconds=3.0, memory_bytes=256 << 20, tasks=64, value_bytes=64 << 10)
BRIEF = replace(LIMITS, call_seconds=0.05)
"""For answers that run until their time is over: most of them keep a core busy until then. The honest answer after each
has the time of `LIMITS`."""
PATIENT = replace(LIMITS, call_seconds=20.0, total_seconds=60.0)
"""For answers that timed out and should not have: to fill the memory takes seconds on a machine that is short of it."""
ALIKE = replace(LIMITS, call_seconds=0.25)
"""The same for all answers, in the case in which none has the brief limits."""
JAILS = 4
"""Jails at once: part of the time is spent waiting for time limits."""
BRIEF_JAILS = 1
"""How many of them have the brief limits, if any has."""
PR_SET_CHILD_SUBREAPER = 36
SETTLED = 10**9
"""Nanoseconds after which a change of a folder has another time than the last one."""


class Surroundings:
    """The targets that answers must not reach, and whether they were reached."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"left-behind-{secrets.token_hex(6)}"
        self.secret = folder / "secret"
        self.secret.write_text("secret")
        self.before = self.secret.stat()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.abstract.bind("\0" + self.mark)
        self.abstract.listen()
        self.named = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.named.bind(str(folder / "socket"))
        self.named.listen()
        self.listening = [self.tcp, self.udp, self.abstract, self.named]
        for each in self.listening:
            each.setblocking(False)
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0)
        self.affinity = os.sched_getaffinity(0)
        self.home = Path.home()
        library = Path(os.__file__).parent
        self.places = {Path(place) for place in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/", ".")}
        self.places |= {self.home, folder, library, library / "__pycache__"}
        self.unmarked: dict[Path, int] = {}

    def __enter__(self) -> Surroundings:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.listening:
            each.close()

    def fill(self, source: str) -> str:
        """A hostile source with what it reaches for."""
        known = {
            "MARK": self.mark,
            "UNIX": self.mark,
            "FOLDER": self.secret.parent,
            "HOME": self.home,
            "PARENT": os.getpid(),
            "PACKAGE": pytest.__file__,
            "SYSTEM": _system_package(),
            "TCP": self.tcp.getsockname()[1],
            "UDP": self.udp.getsockname()[1],
        }
        for name, value in known.items():
            source = source.replace(f"@{name}@", str(value))
        return source

    def changed(self) -> list[str]:
        """What is not as it was."""
        found = [str(place) for place in self.places if self._holds_mark(place)]
        after = self.secret.stat()
        if self.secret.read_text() != "secret" or (after.st_mode, after.st_nlink, after.st_mtime) != (
            self.before.st_mode,
            self.before.st_nlink,
            self.before.st_mtime,
        ):
            found.append("the secret")
        for each in self.listening:
            with contextlib.suppress(BlockingIOError):
                each.recv(1) if each is self.udp else each.accept()[0].close()
                found.append(f"a message at {each}")
        now = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0)
        if now != self.limits or os.sched_getaffinity(0) != self.affinity:
            found.append("limits of this process")
        with contextlib.suppress(FileNotFoundError):
            if any(line.split()[0] == str(0x5EED) for line in Path("/proc/sysvipc/shm").read_text().splitlines()):
                found.append("shared memory")
        return found

    def _holds_mark(self, place: Path) -> bool:
        """Whether it does. Thousands of entries after every answer: they are read again only if there may be new ones,
        which nobody can hide from the time of the last change."""
        try:
            changed = place.stat().st_ctime_ns
            if self.unmarked.get(place) == changed:
                return False
            settled = time.time_ns() - changed > SETTLED
            with os.scandir(place) as entries:  # `iterdir` takes three times as long
                found = any(self.mark in entry.name for entry in entries)
        except OSError:
            return False
        if settled and not found:
            self.unmarked[place] = changed
        return found


def _system_package() -> str:
    """Return a file of a package that the system has installed; one of this environment if there is none."""
    places = ("lib/python3*/*-packages", "lib64/python3*/*-packages", "lib/node_modules", "lib/apt", "lib/git-core")
    found = (path for place in places for folder in Path("/usr").glob(place) for path in folder.rglob("*.*"))
    return str(next(filter(Path.is_file, found), pytest.__file__))


class Team:
    """Scores hostile answers in one jail, an honest one after each."""

    def __init__(self, box: Sandbox, around: Surroundings, expected: str) -> None:
        self.box, self.around, self.expected = box, around, expected
        self.scorer = CodeScorer(box, "strict")
        self.scored = 0
        self.task = Task(
            id="secret",
            problem_description="Return the secret.",
            ground_truth=f"def f(x=1):\n    return {expected!r}",
            test_cases={"test1": "f()"},
        )

    def attack(self, answer: Hostile) -> dict[str, Any]:
        verdict = self._score(self.around.fill(answer.source))
        left = [f"process {pid}" for pid in self._processes()] + self.around.changed()
        worker = self.box._workers[0]
        own = worker.limits
        worker.limits = replace(own, call_seconds=max(LIMITS.call_seconds, own.call_seconds))
        honest = self._score(f"def f():\n    print('hello')\n    return str({self.expected!r})")
        worker.limits = own
        return {
            "outcome": verdict.outcome,
            "reward": verdict.reward,
            "detail": json.dumps(verdict.detail, ensure_ascii=False),
            "left": left,
            "honest": honest.reward,
            "honest_told": str(honest.detail),
        }

    def _score(self, source: str) -> Verdict:
        self.scored += 1  # in each text, or the scorer would not run one that it has seen before
        (verdict,) = self.scorer.score([(self.task, f"```python\n{source}\n# {self.scored}\n```")])
        return verdict

    def _processes(self) -> list[int]:
        worker = self.box._workers[0]
        found: list[int] = []
        for running in worker.jails.values():
            if running is not None and running.root is not None:
                running.reap()
                if has_children(running.root):
                    found += descendants(running.root)
        return found


def has_children(process: int) -> bool:
    """Whether it does, as its own list says where the kernel makes one: none of them ends meanwhile, which could hide
    others. To look for descendants among all processes takes a hundred times as long."""
    try:
        return bool(Path(f"/proc/{process}/task/{process}/children").read_bytes())
    except OSError:
        return True


def attack_all(tier: Tier, brief: bool, filtered: bool = True) -> dict[str, Any]:
    """Return the result of every answer by name, and under "" anything left after all jails were closed.

    Args:
        brief: answers that run until their time is over have the limits `BRIEF`.
        filtered: whether the jail has its filter of system calls.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    expected = f"expected-{secrets.token_hex(8)}"

    with tempfile.TemporaryDirectory() as folder, Surroundings(Path(folder)) as around:

        def several(answers: list[Hostile], limits: Limits) -> dict[str, Any]:
            with open_jails(tier, 1, limits) as box:
                team = Team(box, around, expected)
                return {answer.name: team.attack(answer) for answer in answers}

        with ThreadPoolExecutor(JAILS) as pool:
            fates: dict[str, Any] = {}
            for some in pool.map(several, *zip(*_shares(brief, filtered), strict=True)):
                fates |= some
        fates |= several([answer for answer in ANSWERS if _late(answer, fates[answer.name], filtered)], PATIENT)
        reader._reader.close()  # the limited process that reads answers is the scorer's own
        fates[""] = {"left": around.changed() + [f"process {pid}" for pid in _running()]}
    return fates


def _running(seconds: float = 2.0) -> list[int]:
    """Return the descendants of this process that have not ended within some seconds.

    The first process of a bwrap jail that was closed becomes a child of this one, which has to wait for it.
    """
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = descendants(os.getpid())
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.02)


def _shares(brief: bool, filtered: bool) -> list[tuple[list[Hostile], Limits]]:
    """Return the answers of each jail, and its limits."""
    endless = [answer for answer in ANSWERS if _is_endless(answer, filtered)] if brief else []
    others = [answer for answer in ANSWERS if answer not in endless]
    count = BRIEF_JAILS if brief else 0
    return [
        *((endless[start::count], BRIEF) for start in range(count)),
        *((others[start :: JAILS - count], LIMITS if brief else ALIKE) for start in range(JAILS - count)),
    ]


def _is_endless(answer: Hostile, filtered: bool) -> bool:
    """Return whether it runs until its time is over, if memory suffices; so do bombs that only the filter stops."""
    return "timeout" in answer.outcome.split("|") or (answer.needs_filter and not filtered)


def _late(answer: Hostile, fate: dict[str, Any], filtered: bool) -> bool:
    """Return whether something timed out unexpectedly, as on a busy machine: the answer is run again alone.

    Of an endless answer that is the honest one after it.
    """
    if fate["reward"] != 0.0 or fate["left"]:
        return False
    if _is_endless(answer, filtered):
        return bool(fate["honest"] != 1.0)
    return bool(fate["honest"] == 1.0 and fate["outcome"] == "timeout" and "timeout" not in answer.outcome)


def main() -> None:
    tier, _, variant = sys.argv[1].partition("-without-")
    with pytest.MonkeyPatch.context() as patch:
        if variant:
            patch.setattr(jail, "seccomp_filters", _no_filter)
        json.dump(attack_all(tier, "--brief" in sys.argv, not variant), sys.stdout)  # type: ignore[arg-type]


def _no_filter() -> bytes:
    raise FilterError("left out for the test")


if __name__ == "__main__":
    main()
