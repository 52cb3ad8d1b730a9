"""Measure one whole process: `python -I -S fresh.py [--until MARK] COMMAND…`, in the project's folder.

A forked process starts with the peak memory of its parent, so it is started by this minimal Python process and not by
a benchmark. Prints {"seconds", "peak_rss_mib"}. With --until the command gets a terminal of 120 x 40 and is killed as
soon as MARK is shown; without it the command must exit with status 0.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

SIZE = (40, 120)
TIMEOUT = 60.0
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def shown_after(terminal: int, mark: str, started: float) -> float:
    """Return the seconds until `mark` is shown."""
    shown = ""
    while time.perf_counter() - started < TIMEOUT:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
        except OSError:  # the process has ended
            break
        if mark in ESCAPE.sub("", shown):
            return time.perf_counter() - started
    sys.exit(f"{mark} was not shown: {ESCAPE.sub('', shown)[-2000:]}")


def main() -> None:
    mark = sys.argv[2] if sys.argv[1] == "--until" else None
    words = sys.argv[1 if mark is None else 3 :]
    started = time.perf_counter()
    child, terminal = (os.fork(), -1) if mark is None else pty.fork()
    if child == 0:
        if mark is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
        else:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
            os.environ.update(TERM="xterm-256color", COLUMNS=str(SIZE[1]), LINES=str(SIZE[0]))
        os.execvp(words[0], words)
    try:
        seconds = 0.0 if mark is None else shown_after(terminal, mark, started)
    finally:
        if mark is not None:
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    if mark is None:
        seconds = time.perf_counter() - started
        if status:
            sys.exit(os.waitstatus_to_exitcode(status))
    json.dump({"seconds": seconds, "peak_rss_mib": used.ru_maxrss / 1024}, sys.stdout)


if __name__ == "__main__":
    main()
