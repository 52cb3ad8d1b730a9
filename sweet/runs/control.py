"""What other processes ask of a running attempt, in a small file that its stage reads: `logs/ATTEMPT.control.json`.

`request` adds a numbered request, under the lock of the manifest and atomically. The stage looks at the file twice a
second (`Requests.new`), does what it accepts, and answers by the number in the file of its progress
(`sweet.runs.progress`), where the other process waits for the answer. The attempt removes the file when it ends, so
nothing asked of one attempt reaches the next. The file is input from outside: what is no request is refused, or read as
none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import SweetError, UsageError
from sweet.files import write_whole
from sweet.regular import read_regular
from sweet.runs.store import Store

Action = Literal["pause", "resume", "concurrency"]
ACTIONS: tuple[Action, ...] = get_args(Action)

LARGEST = 1 << 20
"""Most bytes of a file that is read."""
KEPT = 200
"""Requests in the file at most; older ones are dropped."""
LONGEST_VALUE = 1000
"""Most characters of the value of a request."""


class Request(BaseModel):
    """One request.

    Attributes:
        number: from 1, in the order in which they were made.
        value: of `concurrency` the number.
    """

    model_config = ConfigDict(frozen=True)

    number: int = Field(ge=1)
    action: Action
    value: str = Field(default="", max_length=LONGEST_VALUE)


class _File(BaseModel):
    requests: list[Request] = Field(default_factory=list)


def request(store: Store, path: Path, action: Action, value: str, *, after: int) -> int:
    """Add a request to the file of an attempt, and return its number.

    Args:
        after: the highest number that has been answered, in case that the file is lost.

    Raises:
        SweetError: the file cannot be written.
    """
    with store.locked():
        before = _read(path)
        number = 1 + max((one.number for one in before), default=after)
        requests = [*before[1 - KEPT :], Request(number=number, action=action, value=value)]
        try:
            write_whole(path, _File(requests=requests).model_dump_json().encode())
        except OSError as error:
            raise UsageError(f"The request cannot be written: {error.strerror}.", where=path) from error
    return number


class Requests:
    """Reads the requests to one attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._handled = 0

    def new(self) -> list[Request]:
        """Return the requests that have been added since the last call."""
        try:
            found = self._path.stat(follow_symlinks=False)
        except OSError:
            return []
        version = found.st_mtime_ns, found.st_ino
        if version == self._seen:
            return []
        self._seen = version
        added = [one for one in _read(self._path) if one.number > self._handled]
        self._handled = max((one.number for one in added), default=self._handled)
        return added


def _read(path: Path) -> list[Request]:
    """Return the requests of a file; none if it does not exist or is damaged."""
    try:
        found = _File.model_validate_json(read_regular(path, LARGEST))
    except (OSError, SweetError, ValidationError):
        return []
    return sorted(found.requests, key=lambda one: one.number)
