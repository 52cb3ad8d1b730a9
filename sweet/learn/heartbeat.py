"""Heartbeats between machines: a file on a shared disk that one process keeps updating and others monitor."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

HEARTBEAT = "pulse"
"""The file of the command's heartbeat in the folder of a job."""
HEARTBEAT_INTERVAL = 2.0
"""Seconds between two heartbeats."""
HEARTBEAT_TIMEOUT = 60.0
"""Seconds without a heartbeat after which its sender counts as dead."""
ENDED = "ended"


class Heartbeat:
    """A file that is updated every few seconds as long as `beat` is called."""

    def __init__(self, path: Path) -> None:
        self._path, self._beats, self._due = path, 0, 0.0
        self.beat()

    def beat(self) -> None:
        if time.monotonic() >= self._due:
            self._due, self._beats = time.monotonic() + HEARTBEAT_INTERVAL, self._beats + 1
            self._write(f"{socket.gethostname()} {self._beats}")

    def end(self) -> None:
        """Report a regular end."""
        self._write(ENDED)

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._path.write_text(text, encoding="utf-8")


class HeartbeatReader:
    """Monitors a heartbeat."""

    def __init__(self, path: Path) -> None:
        self._path, self._last, self._since = path, "", time.monotonic()
        self.host = ""
        """The sender's host name; empty before the first heartbeat."""

    def silence(self) -> float:
        """Seconds since the last change, or since monitoring began."""
        self.read()
        return time.monotonic() - self._since

    def read(self) -> str:
        """The current content; the previous one if the file cannot be read."""
        try:
            now = self._path.read_text(encoding="utf-8")
        except OSError:
            now = self._last
        if now != self._last:
            self._last, self._since = now, time.monotonic()
            if now != ENDED:
                self.host = now.partition(" ")[0]
        return now

    @property
    def started(self) -> bool:
        """Whether a heartbeat has been seen."""
        return bool(self.host)

    @property
    def ended(self) -> bool:
        """Whether it ended regularly. An end without an earlier heartbeat is left over from another training."""
        return self.started and self._last == ENDED
