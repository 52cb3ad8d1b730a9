"""Ends a server when the process that started it is gone: `python supervisor.py PARENT GRACE_PERIOD -- COMMAND…`.

The process that starts a server may be killed so that it cannot clean up. Therefore a second, small process runs
between the two: it starts the command in its own process group, waits for it, and forwards SIGTERM and the exit status.
Several times a second it checks that process PARENT is still its parent. If it is not, the supervisor terminates the
command, waits GRACE_PERIOD seconds, and then kills the whole group, workers included. SIGINT kills them without
waiting. If the supervisor itself is killed, Linux sends SIGTERM to the command. With --adopt in the place of -- what
has left the group is killed too, on Linux.

A killed process cannot release its shared memory. Python starts a resource tracker that does so as soon as the
processes it works for are gone, so the tracker is the only process of the group that is not killed.

The file runs as a script, without the package and without site-packages: it takes a few MB and starts at once.
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

POLL_INTERVAL = 0.2
"""Seconds between two checks of the parent and the command."""

KILL_TIMEOUT = 2.0
"""Seconds in which all killed processes must be gone."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def supervised(command: Sequence[str], grace_period: float, mark: str = "--") -> list[str]:
    """The command line that runs `command` under a supervisor of this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(grace_period), mark, *command]


def supervise(parent: int, grace_period: float, mark: str, command: Sequence[str]) -> int:
    """Run `command` until it ends or process `parent` is gone.

    Args:
        grace_period: seconds between SIGTERM and SIGKILL once the parent is gone.
        mark: --adopt, or --.

    Returns:
        The exit status of the command, 128 + n for signal n.
    """
    if os.getpgrp() != os.getpid():  # so that killing the group never kills the process that started this one
        os.setsid()
    if sys.platform == "linux" and mark == "--adopt":  # descendants whose parents have ended are children of this one
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: received.append(number))
    try:
        child = subprocess.Popen(command, preexec_fn=_die_with_supervisor if sys.platform == "linux" else None)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error}\n")
        return 127
    while child.poll() is None:
        if os.getppid() != parent:
            _terminate_group(child, grace_period)
        if received:
            if received.pop() == signal.SIGINT:
                _kill_rest_of_group()
            else:
                child.terminate()
        time.sleep(POLL_INTERVAL)
    _kill_rest_of_group()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _terminate_group(child: subprocess.Popen[bytes], grace_period: float) -> None:
    """Terminate the command, then kill everything in this process group. Does not return."""
    child.terminate()
    deadline = time.monotonic() + grace_period
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
    _kill_rest_of_group()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _kill_rest_of_group() -> None:
    """Kill all others of `_group_members` and wait until they are gone. Does nothing without /proc."""
    deadline = time.monotonic() + KILL_TIMEOUT
    while (members := _group_members()) and time.monotonic() < deadline:
        for pid, is_tracker in members.items():
            if not is_tracker:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_INTERVAL / 4)


def _group_members() -> dict[int, bool]:
    """The other living processes of this group and the children in others, and whether each is a resource tracker."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, group = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:3]
            is_ours = int(group) == os.getpgrp() or int(parent) == os.getpid()
            if is_ours and int(entry.name) != os.getpid() and state != b"Z":
                found[int(entry.name)] = b"multiprocessing.resource_tracker" in (entry / "cmdline").read_bytes()
        except (OSError, ValueError):  # the process has just ended
            continue
    return found


def _die_with_supervisor() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
