"""The progress of a running attempt, in a small file that other processes read: `logs/ATTEMPT.progress.json`.

`ProgressFile` writes it whole and atomically, at most once a second and when something begins or ends; the attempt
removes it when it ends. A process that is killed leaves it behind: whether an attempt runs is in the manifest
(`Run.manifest`), never in this file. A file that cannot be written stops no work, and one that cannot be read shows
nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import SweetError
from sweet.files import write_whole
from sweet.json_value import JsonValue
from sweet.regular import read_regular
from sweet.runs.environment import recordable
from sweet.runs.manifest import now

SECONDS_BETWEEN_WRITES = 1.0
RATE_SECONDS = 60.0
"""The rate is measured over this time at most."""
LARGEST = 1 << 18
"""Most bytes of a file that is read."""


class AttemptProgress(BaseModel):
    """What a running attempt is doing."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    title: str = ""
    """What is counted, such as dialogues; empty while nothing is."""
    done: int = Field(default=0, ge=0)
    total: int | None = Field(default=None, ge=0)
    """None if it is not known."""
    figures: dict[str, JsonValue] = Field(default_factory=dict)
    """Shown beside the count, such as the loss."""
    per_second: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Items a second over the last minute; None if nothing has been done in it."""
    seconds_left: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Until the end, estimated by this rate."""
    changed: AwareDatetime
    """When `done` changed last."""


class Counter:
    """Items that are done, and their rate, in the file of an attempt."""

    def __init__(self, file: ProgressFile, title: str, total: int | None) -> None:
        self.title, self.total, self.done = title, total, 0
        self.figures: dict[str, object] = {}
        self.changed = now()
        self._file, self._clock = file, file.clock
        self._samples = deque([(file.clock(), 0)])

    def advance(self, by: int = 1) -> None:
        with self._file.lock:
            self.done += by
            self.changed = now()
            self._file.write_when_due()

    def note(self, **figures: object) -> None:
        with self._file.lock:
            self.figures = figures
            self._file.write_when_due()

    def rate(self) -> float | None:
        """Return the items a second over the last minute, by samples a second apart."""
        time_ = self._clock()
        while len(self._samples) > 1 and self._samples[1][0] <= time_ - RATE_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        if time_ - self._samples[-1][0] >= SECONDS_BETWEEN_WRITES:
            self._samples.append((time_, self.done))
        return (self.done - before) / (time_ - since) if self.done > before and time_ > since else None


class ProgressFile:
    """Writes the progress of one attempt. Thread-safe, and cheap enough to call for every item.

    Args:
        clock: returns seconds; replaced in tests.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self.clock = path, clock
        self.lock = threading.Lock()
        self._open: list[Counter] = []
        self._due = 0.0
        self._write()

    @contextmanager
    def counting(self, title: str, total: int | None, figures: Mapping[str, object] | None = None) -> Iterator[Counter]:
        """Show a new count within the block, instead of the one that it is within, if there is one."""
        counter = Counter(self, title, total)
        counter.figures = dict(figures or {})
        with self.lock:
            self._open.append(counter)
            self._write()
        try:
            yield counter
        finally:
            with self.lock:
                self._open.remove(counter)
                self._write()

    def write_when_due(self) -> None:
        """Write the file if that is a second ago. The caller holds the lock."""
        if self.clock() >= self._due:
            self._write()

    def _write(self) -> None:
        self._due = self.clock() + SECONDS_BETWEEN_WRITES
        with suppress(OSError, SweetError):
            write_whole(self._path, self._progress().model_dump_json().encode())

    def _progress(self) -> AttemptProgress:
        if not self._open:
            return AttemptProgress(changed=now())
        bar = self._open[-1]
        rate = bar.rate()
        left = None if rate is None or bar.total is None else max(0, bar.total - bar.done) / rate
        return AttemptProgress(
            title=bar.title,
            done=max(0, bar.done),
            total=bar.total,
            figures=recordable({name: _plain(value) for name, value in bar.figures.items()}),
            per_second=None if rate is None else round(rate, 6),
            seconds_left=None if left is None else round(left, 1),
            changed=bar.changed,
        )


def read_progress(path: Path) -> AttemptProgress | None:
    """Return what the file of an attempt says; None if there is none, or none that can be read."""
    try:
        return AttemptProgress.model_validate_json(read_regular(path, LARGEST))
    except (OSError, SweetError, ValidationError):
        return None


def _plain(value: object) -> JsonValue:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
