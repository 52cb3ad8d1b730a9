"""The tokens that an attempt has models read and write, by their role: `logs/ATTEMPT.tokens.json`.

While an attempt runs, its `TokenMeter` is that of the context (`metering`). Whatever opens a model there counts each
completion that it receives (`sweet.llm.connect`), also one whose dialogue fails later, so no stage does so itself. The
file is written once a second, less often on a slow disk, and at the end: a kill loses little of the cost of what
was said, which goes on (sweet.rollouts.steps).

Not counted are answers that never arrived: those of requests that were cancelled, or that timed out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError

from sweet.errors import InputError, SweetError
from sweet.files import write_whole
from sweet.regular import read_regular
from sweet.runs.manifest import LOGS, Manifest

LEAST_SECONDS_BETWEEN_WRITES = 1.0
LARGEST = 1 << 16
"""Bytes of a file at most."""


class Tokens(BaseModel):
    """What the model of one role has read and written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: NonNegativeInt = 0
    completion: NonNegativeInt = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(prompt=self.prompt + other.prompt, completion=self.completion + other.completion)


TokensByRole = Mapping[str, Tokens]

_FILE = TypeAdapter(dict[str, Tokens])


class TokenMeter:
    """Counts the tokens of one attempt. Thread-safe.

    Args:
        path: of its file, which appears with the first tokens.
        counts: of an earlier call, which are part of its own.
    """

    def __init__(self, path: Path, counts: TokensByRole | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._counts = dict(counts or {})
        self._due, self._unwritten = 0.0, False

    @property
    def counts(self) -> dict[str, Tokens]:
        with self._lock:
            return dict(self._counts)

    def add(self, role: str, prompt: int, completion: int) -> None:
        """Count a completion."""
        with self._lock:
            self._counts[role] = self._counts.get(role, Tokens()) + Tokens(prompt=prompt, completion=completion)
            self._unwritten = True
        self.write_when_due()

    def write_when_due(self) -> None:
        """Write the file if that is a while ago and something was counted since. It stops no work that it cannot be
        written now: at the end of the attempt it must be."""
        if time.monotonic() >= self._due:
            with suppress(OSError, SweetError):
                self.write()

    def write(self) -> None:
        """Write the file if something was counted since.

        Raises:
            InputError: there is something else in its place.
            OSError: it cannot be written.
        """
        with self._lock:
            if self._unwritten:
                began = time.monotonic()
                write_whole(self._path, _FILE.dump_json(self._counts))
                now, self._unwritten = time.monotonic(), False
                self._due = now + max(20 * (now - began), LEAST_SECONDS_BETWEEN_WRITES)


_METER: ContextVar[TokenMeter | None] = ContextVar("meter", default=None)


def current_meter() -> TokenMeter | None:
    """Return the meter of the attempt that is under way; None outside of attempts."""
    return _METER.get()


@contextmanager
def metering(meter: TokenMeter) -> Iterator[None]:
    """Count the tokens of the models that are opened within the block; those of an attempt in it count for that one."""
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)
        meter.write()


def tokens_path(root: Path, attempt: str) -> Path:
    """Return the file of an attempt, below the root of its run."""
    return root / LOGS / f"{attempt}.tokens.json"


def read_tokens(path: Path) -> dict[str, Tokens]:
    """Return the tokens in a file, by role; none if there is no file.

    Raises:
        InputError: it is invalid.
    """
    try:
        return _FILE.validate_json(read_regular(path, LARGEST))
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        fix = "restore it from a copy, or delete it: these tokens are then not counted"
        raise InputError("This is no record of tokens.", path=path, fix=fix) from error


def tokens_of_run(root: Path, manifest: Manifest, *, artifact: str | None = None) -> dict[str, Tokens]:
    """Return the tokens of all attempts, by role.

    Args:
        artifact: only those of the attempts that made this artifact, one after the other.

    Raises:
        InputError: a file is invalid.
    """
    attempts = [attempt for attempt in manifest.attempts if artifact is None or artifact in attempt.outputs]
    return total(read_tokens(tokens_path(root, attempt.id)) for attempt in attempts)


def total(parts: Iterable[TokensByRole]) -> dict[str, Tokens]:
    """Return the sum of tokens, by role."""
    sums: dict[str, Tokens] = {}
    for part in parts:
        for role, tokens in part.items():
            sums[role] = sums.get(role, Tokens()) + tokens
    return sums
