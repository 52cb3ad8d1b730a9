"""Search all dialogues in a separate process (sweet/view/search_worker.py).

So neither 400 MB of dialogues nor an endless regular expression blocks the screen, and the search can be stopped at any
time. The process runs under a supervisor (sweet.supervisor), which ends it when this process dies for any reason.
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

from sweet.regular import open_regular
from sweet.supervisor import supervised

PROGRAM = Path(__file__).with_name("search_worker.py")
POLL_INTERVAL = 0.05
"""Seconds between two polls in `wait`."""


class Search:
    """A search for a text, ignoring case, or for a regular expression. It starts at once.

    It covers the request, the turns of both sides, the raw replies, thoughts and the answer; with `hidden` also the
    information that is hidden from the agent.

    Raises:
        InputError: the path is no regular file, or in a run it is reached over a link.

    Attributes:
        done: the search has ended: it is complete, was stopped, or has an `error`.
        error: why it failed; it may contain text of the user or of a file.
        seen: the share of the file that was searched, 0 to 1.
        hits: some of the texts that were found, by the id of their dialogue.
    """

    def __init__(self, path: Path, pattern: str, *, regex: bool = False, hidden: bool = False) -> None:
        self.done = False
        self.error: str | None = None
        self.seen = 0.0
        self.hits: dict[str, list[str]] = {}
        self._size = max(_size(path), 1)
        self._rest = b""
        self._ended = False
        self._process = subprocess.Popen(
            supervised([sys.executable, "-P", str(PROGRAM)], grace_period=0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the process group is killed as a whole; Ctrl-C reaches this process only
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        request = {"path": str(path), "pattern": pattern, "regex": regex, "hidden": hidden}
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(json.dumps(request).encode())

    def poll(self) -> list[str]:
        """Return the ids that were found since the last call, without waiting."""
        found: list[str] = []
        for line in self._lines():
            answer = json.loads(line)
            if "found" in answer:
                found.append(answer["found"])
                self.hits[answer["found"]] = answer["hits"]
            self.seen = min(answer.get("seen", 0) / self._size, 1.0) or self.seen
            self.error = answer.get("error") or self.error
            if "done" in answer:
                self.seen = 1.0 if self.error is None else self.seen
                self.stop()
        if self._ended and not self.done:
            self.error = self.error or "The search process ended before it was complete."
            self.stop()
        return found

    def wait(self) -> list[str]:
        """Wait for the end of the search and return all ids."""
        found = self.poll()
        while not self.done:
            time.sleep(POLL_INTERVAL)
            found += self.poll()
        return found

    def stop(self) -> None:
        """Stop the search at once; may be called at any time."""
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
        """Yield the complete lines received so far."""
        if self.done or self._process.stdout is None:
            return
        received = [self._rest]
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._process.stdout.fileno(), 1 << 16):
                received.append(chunk)
            self._ended = True
        *lines, self._rest = b"".join(received).split(b"\n")
        yield from lines


def _size(path: Path) -> int:
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_size
    except OSError:  # the process says so
        return 0
