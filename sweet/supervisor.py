"""Keeps a server from outliving who started it: `python keeper.py PARENT PATIENCE -- COMMAND…`.

The one who starts a server may be killed so that it can do nothing more. So a second, tiny process stands between the
two: it starts the command in its own process group, waits for it, and hands on SIGTERM and the exit status. Several
times a second it looks whether process PARENT is still its parent; when it is not, it asks the command to end, waits
PATIENCE seconds, and then kills the whole group, workers included. SIGINT kills them without waiting. Should the keeper
itself be killed, Linux sends the command SIGTERM.

What is killed cannot give back its shared memory. Python starts a tracker for that, which does so as soon as those it
works for are gone: it is the one process of the group that is left to end by itself.

It runs as a script of its own, without the package and without site-packages: it costs a few MB and starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

GLANCE = 0.2
"""Seconds between two looks at the parent and the command."""

SWEEP = 2.0
"""Seconds in which everything that was killed must be gone."""

_PR_SET_PDEATHSIG = 1


def kept(command: Sequence[str], patience: float) -> list[str]:
    """The command line that runs `command` behind a keeper of this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(patience), "--", *command]


def keep(parent: int, patience: float, command: Sequence[str]) -> int:
    """Run `command` until it ends or process `parent` is gone; returns its exit status (128 + n for signal n)."""
    if os.getpgrp() != os.getpid():  # what is killed as a group is its own group, never its starter's
        os.setsid()
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    try:
        child = subprocess.Popen(command, preexec_fn=_end_with_keeper if sys.platform == "linux" else None)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error}\n")
        return 127
    while child.poll() is None:
        if os.getppid() != parent:
            _abandon(child, patience)
        if told:
            if told.pop() == signal.SIGINT:
                _sweep()
            else:
                child.terminate()
        time.sleep(GLANCE)
    _sweep()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _abandon(child: subprocess.Popen[bytes], patience: float) -> None:
    """End the command, and everything of this process group: does not return."""
    child.terminate()
    ends = time.monotonic() + patience
    while child.poll() is None and time.monotonic() < ends:
        time.sleep(GLANCE)
    _sweep()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _sweep() -> None:
    """Kill what else is in this process group and wait until it is gone. Does nothing where there is no /proc."""
    ends = time.monotonic() + SWEEP
    while (others := _others()) and time.monotonic() < ends:
        for pid, is_tracker in others.items():
            if not is_tracker:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(GLANCE / 4)


def _others() -> dict[int, bool]:
    """The living processes of this group but this one, and whether each is a tracker of shared memory."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:3]
            if int(group) == os.getpgrp() and int(entry.name) != os.getpid() and state != b"Z":
                found[int(entry.name)] = b"multiprocessing.resource_tracker" in (entry / "cmdline").read_bytes()
        except (OSError, ValueError):  # it has just ended
            continue
    return found


def _end_with_keeper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), float(sys.argv[2]), sys.argv[4:]))
