"""A search through all dialogues, in a process of its own (sweet/view/search_worker.py).

So neither 400 MB nor a regular expression that never ends holds the screen, and both can be stopped. The process stands
behind a keeper (sweet.supervisor), which ends it when this process is gone, however that came.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from sweet.supervisor import supervised

PROGRAM = Path(__file__).with_name("search_worker.py")
GLANCE = 0.05
"""Seconds between two looks of who waits for all."""


class Search:
    """The search for a text, in any case, or for a regular expression. It begins at once.

    Searched are the request, both sides' turns, the raw replies and the answer; with `hidden` also what is hidden from
    the agent.

    Attributes:
        done: it has ended: all was seen, it was stopped, or there is an `error`.
        error: why it could not be done, in words that may hold text of the user or of a file.
        seen: the share of the file that was looked at, 0 to 1.
    """

    def __init__(self, path: Path, pattern: str, *, regex: bool = False, hidden: bool = False) -> None:
        self.done = False
        self.error: str | None = None
        self.seen = 0.0
        self._size = max(path.stat().st_size, 1) if path.exists() else 1
        self._rest = b""
        self._ended = False
        self._process = subprocess.Popen(
            supervised([sys.executable, "-P", str(PROGRAM)], grace_period=0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # one group, killed as one; and Ctrl-C is ours alone
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        question = {"path": str(path), "pattern": pattern, "regex": regex, "hidden": hidden}
        with contextlib.suppress(BrokenPipeError), self._process.stdin as asked:
            asked.write(json.dumps(question).encode())

    def poll(self) -> list[str]:
        """The ids of the trajectories that were found since the last call; does not wait."""
        found: list[str] = []
        for line in self._lines():
            answer = json.loads(line)
            if "found" in answer:
                found.append(answer["found"])
            self.seen = min(answer.get("seen", 0) / self._size, 1.0) or self.seen
            self.error = answer.get("error") or self.error
            if "done" in answer:
                self.seen = 1.0 if self.error is None else self.seen
                self.stop()
        if self._ended and not self.done:
            self.error = self.error or "The process that searches has ended before it was through."
            self.stop()
        return found

    def wait(self) -> list[str]:
        """All ids, when it has ended."""
        found = self.poll()
        while not self.done:
            time.sleep(GLANCE)
            found += self.poll()
        return found

    def stop(self) -> None:
        """End it at once; may be called at any time."""
        if self.done:
            return
        self.done = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Search:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _lines(self) -> Iterator[bytes]:
        """The whole lines that have come."""
        if self.done or self._process.stdout is None:
            return
        came = [self._rest]
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._process.stdout.fileno(), 1 << 16):
                came.append(chunk)
            self._ended = True
        *lines, self._rest = b"".join(came).split(b"\n")
        yield from lines
