"""Keeps a server from outliving who started it: `python keeper.py PARENT PATIENCE -- COMMAND…`.

The one who starts a server may be killed so that it can do nothing more. So a second, tiny process stands between the
two: it starts the command in its own process group, waits for it, and hands on SIGTERM and the exit status. Several
times a second it looks whether process PARENT is still its parent; when it is not, it asks the command to end, waits
PATIENCE seconds, and then kills the whole group, workers included. Should the keeper itself be killed, Linux sends
the command SIGTERM.

It runs as a script of its own, without the package and without site-packages: it costs a few MB and starts at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

GLANCE = 0.2
"""Seconds between two looks at the parent and the command."""

_PR_SET_PDEATHSIG = 1


def keep(parent: int, patience: float, command: Sequence[str]) -> int:
    """Run `command` until it ends or process `parent` is gone; returns its exit status (128 + n for signal n)."""
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
            told.clear()
            child.terminate()
        time.sleep(GLANCE)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _abandon(child: subprocess.Popen[bytes], patience: float) -> None:
    """End the command, and everything of this process group: does not return."""
    child.terminate()
    ends = time.monotonic() + patience
    while child.poll() is None and time.monotonic() < ends:
        time.sleep(GLANCE)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with_keeper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), float(sys.argv[2]), sys.argv[4:]))
