"""An index of a JSONL artifact, so that a viewer does not have to read the whole file.

It holds the position of each row and the fields that a list shows. It is kept in a hidden file next to the artifact and
is never required: if it is missing, damaged, or cannot be written (a read-only run), it is made in memory. An entry
stands for a line with its line feed; these lines are `covered`, and the index has the sha256 of all their bytes. A last
line without a line feed is read again each time.

A saved index is valid without reading the artifact if the file has the same size, modification time and inode as when
the index was made, and that time was older than the resolution of the clock. Otherwise the covered bytes are read
again: if their sha256 is the same, only the rest is parsed (a rollout was continued, or the run was copied), else the
whole file (it was edited, truncated or replaced). A process that follows a file which is only appended to, and that has
read the covered bytes itself, compares only the last of them.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import InputError
from sweet.files import UNFINISHED, write_whole
from sweet.regular import open_regular, read_regular
from sweet.runs.content import CLOCK_SLACK
from sweet.runs.entries import FORMS, E, Form
from sweet.runs.jsonl import LONGEST_LINE, bounded_lines, is_object, parse_row
from sweet.runs.manifest import Kind

VERSION = 2
"""Incremented when the content of an entry changes."""
WORTH_KEEPING = 1 << 20
"""Artifacts with fewer bytes are read quickly, and no index is kept."""
TAIL = 4096
"""Number of the last covered bytes that identify a file which is only appended to."""
ABANDONED = 60.0
"""Seconds after which an unfinished temporary file of an index is removed."""
CHUNK = 1 << 20
LARGEST = 1 << 30
"""Most bytes of an index that are read: those of some million rows."""

Kept = TypeVar("Kept")


def index_path(artifact: Path) -> Path:
    return artifact.with_name(f".{artifact.name}.index")


def save_index(artifact: Path, kind: Kind) -> None:
    """Keep an index of a finished artifact, if that is large. Errors in rows are reported when they are read."""
    if kind in FORMS and artifact.is_file() and artifact.stat().st_size >= WORTH_KEEPING:
        with suppress(InputError, OSError):
            Index(artifact, FORMS[kind])


@dataclass(frozen=True)
class Stamp:
    """Identifies the state of a file."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, file: BinaryIO) -> Stamp:
        stat = os.fstat(file.fileno())
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)


class _SavedIndex(BaseModel, Generic[Kept]):
    """The content of the hidden file."""

    model_config = ConfigDict(extra="forbid")

    version: int
    kind: str
    stamp: Stamp | None
    covered: int = Field(ge=0)
    lines: int = Field(ge=0)
    sum: str
    entries: list[Kept]


class Index(Generic[E]):
    """The rows of an artifact, as they are when it is opened; `update` reads it again.

    Attributes:
        path: the artifact.

    Raises:
        InputError: a line is damaged, or the file does not exist.
    """

    def __init__(self, path: Path, form: Form[E]) -> None:
        self.path = path
        self.form = form
        self._reset()
        kept = self._load()
        self.update()
        if (self._stamp, self._covered) != kept and self._covered >= WORTH_KEEPING:
            self._save()

    def _reset(self) -> None:
        self._entries: list[E] = []
        self._last: E | None = None  # of a line without its line feed
        self._covered = 0
        self._lines = 0
        self._stamp: Stamp | None = None  # None if the file's time does not identify its content
        self._hash: Any = hashlib.sha256()  # of the covered bytes; None if this process has not read them
        self._saved_digest = ""  # of the covered bytes, if `_hash` is None
        self._tail = b""

    @property
    def entries(self) -> list[E]:
        """In the file's order."""
        return self._entries if self._last is None else [*self._entries, self._last]

    def update(self, *, appended: bool = False) -> bool:
        """Read the file again. Return whether the entries have changed.

        Args:
            appended: whether the file is only appended to.

        Raises:
            InputError: as on opening.
        """
        now = time.time()
        try:
            with open_regular(self.path) as file:
                stamp = Stamp.of(file)
                if stamp == self._stamp and (self._hash is not None or stamp.size == self._covered):
                    return False
                before = (len(self._entries), self._last)
                known = self._is_covered(file, stamp.size, appended=appended)
                if not known:
                    self._reset()
                self._read_rest(file)
        except OSError as error:
            raise InputError(f"The file cannot be read: {error.strerror}.", path=self.path) from error
        settled = stamp.mtime_ns / 1e9 < now - CLOCK_SLACK
        self._stamp = stamp if settled else None
        return not known or before != (len(self._entries), self._last)

    def line(self, entry: E) -> bytes:
        """Read the line of an entry.

        Raises:
            InputError: it no longer matches the entry.
        """
        with suppress(OSError, ValueError), open_regular(self.path) as file:
            file.seek(entry.offset)
            line = file.read(max(0, min(entry.length, LONGEST_LINE)))  # a saved index may say anything
            if self.form.row.model_validate_json(line).entry(entry.offset, entry.length) == entry:
                return line
        what = f"The row of {entry.id} is not where it was: the file was changed in the meantime."
        raise InputError(what, path=self.path, fix="open it again")

    def _is_covered(self, file: BinaryIO, size: int, *, appended: bool) -> bool:
        """Return whether the file begins with the covered bytes."""
        if size < self._covered:
            return False
        if appended and self._hash is not None:
            file.seek(self._covered - len(self._tail))
            return file.read(len(self._tail)) == self._tail
        file.seek(0)
        found, left, chunk = hashlib.sha256(), self._covered, b""
        while left and (chunk := file.read(min(left, CHUNK))):
            found.update(chunk)
            left -= len(chunk)
        if left or found.hexdigest() != self._digest():
            return False
        self._hash, self._tail = found, chunk[-TAIL:]
        return True

    def _digest(self) -> str:
        return self._saved_digest if self._hash is None else str(self._hash.hexdigest())

    def _read_rest(self, file: BinaryIO) -> None:
        """Parse the lines after the covered bytes."""
        self._last = None
        file.seek(self._covered)
        for line in bounded_lines(file, self.path):
            if not line.endswith(b"\n"):
                self._last = self._entry(line) if is_object(line) else None
                return
            if not line.isspace():
                self._entries.append(self._entry(line))
            self._cover(line)

    def _entry(self, line: bytes) -> E:
        row = parse_row(line, self.form.row, self.path, self._lines + 1)
        return row.entry(self._covered, len(line.removesuffix(b"\n")))

    def _cover(self, line: bytes) -> None:
        self._covered += len(line)
        self._lines += 1
        self._hash.update(line)
        self._tail = (self._tail + line)[-TAIL:] if len(line) < TAIL else line[-TAIL:]

    def _load(self) -> tuple[Stamp | None, int] | None:
        """Load the saved index and return its stamp and covered bytes; None if it is missing or invalid."""
        try:
            content = read_regular(index_path(self.path), LARGEST)
            kept = _SavedIndex[self.form.entry].model_validate_json(content)  # type: ignore[name-defined]
        except (OSError, ValidationError):
            return None
        if (kept.version, kept.kind) != (VERSION, self.form.kind):
            return None
        self._entries, self._covered, self._lines = kept.entries, kept.covered, kept.lines
        self._saved_digest, self._hash, self._stamp = kept.sum, None, kept.stamp
        return kept.stamp, kept.covered

    def _save(self) -> None:
        saved = _SavedIndex[Any](
            version=VERSION,
            kind=self.form.kind,
            stamp=self._stamp,
            covered=self._covered,
            lines=self._lines,
            sum=self._digest(),
            entries=self._entries,
        )
        path = index_path(self.path)
        with suppress(OSError):
            write_whole(path, saved.model_dump_json().encode())
            for orphan in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
                if time.time() - orphan.stat().st_mtime > ABANDONED:
                    orphan.unlink()
