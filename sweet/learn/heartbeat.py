"""Signs of life between machines: a file that one keeps changing and others watch, on a disk that all see."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

HEARTBEAT = "pulse"
"""The file of the command's heartbeat, in the folder of a job."""
HEARTBEAT_INTERVAL = 2.0
"""Seconds between two beats."""
HEARTBEAT_TIMEOUT = 60.0
"""Seconds without a beat after which who made them is dead."""
ENDED = "ended"


class Heartbeat:
    """A file that says something new every few seconds, as long as `beat` is called; whom it cannot reach any more will
    find it still."""

    def __init__(self, path: Path) -> None:
        self._path, self._beats, self._due = path, 0, 0.0
        self.beat()

    def beat(self) -> None:
        if time.monotonic() >= self._due:
            self._due, self._beats = time.monotonic() + HEARTBEAT_INTERVAL, self._beats + 1
            self._write(f"{socket.gethostname()} {self._beats}")

    def end(self) -> None:
        """No more beats, and this is no death."""
        self._write(ENDED)

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._path.write_text(text, encoding="utf-8")


class HeartbeatReader:
    """Listens to a pulse."""

    def __init__(self, path: Path) -> None:
        self._path, self._last, self._since = path, "", time.monotonic()
        self.host = ""
        """The machine it comes from; empty before the first beat."""

    def silence(self) -> float:
        """Seconds since its last change, or since the listening began."""
        self.read()
        return time.monotonic() - self._since

    def read(self) -> str:
        """What it says now, which an unreadable file does not change."""
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
        """Whether it was heard at all."""
        return bool(self.host)

    @property
    def ended(self) -> bool:
        """Whether it ended in order. An end without a beat before it is one of another time."""
        return self.started and self._last == ENDED
