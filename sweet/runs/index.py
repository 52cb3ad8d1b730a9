"""An index of a JSONL artifact: where each row lies and what a list shows of it, so that a viewer need not read it all.

It is kept in a hidden file beside the artifact and is never needed: what it says follows from the artifact, and where
it is missing, damaged, or cannot be written (a read-only run), it is made in memory. An entry stands for a line that
has its line feed; such lines are `covered`, and with them goes a checksum of all their bytes. A line at the end that
lacks its line feed is read anew each time.

When is a kept index right? If the file has the size, time and inode that it had when the index was made, and that time
was not younger then than a clock's grain, nobody has written since. Otherwise the covered bytes are read again: if
their checksum is the same, only what follows them is parsed (a rollout goes on, or the run was copied), else everything
is (an edit, a truncation, another file). A process that follows a file which is only appended to, and has seen the
covered bytes itself, looks at the last of them alone.
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
from sweet.runs.content import CLOCK_SLACK
from sweet.runs.entries import FORMS, E, Form
from sweet.runs.jsonl import is_object, parse_row
from sweet.runs.manifest import Kind

VERSION = 1
"""Raised whenever an entry holds something else."""
WORTH_KEEPING = 1 << 20
"""Bytes of an artifact below which it is read in a moment, and no index kept."""
TAIL = 4096
"""Bytes at the end of the covered ones by which a file that is appended to is known again."""
ABANDONED = 60.0
"""Seconds after which an index that is half written belongs to nobody."""
CHUNK = 1 << 20

Kept = TypeVar("Kept")


def index_path(artifact: Path) -> Path:
    return artifact.with_name(f".{artifact.name}.index")


def leave_index(artifact: Path, kind: Kind) -> None:
    """Keep an index of an artifact that was just finished, if it is worth one. What is wrong with a row is told to
    who looks at it."""
    if kind in FORMS and artifact.is_file() and artifact.stat().st_size >= WORTH_KEEPING:
        with suppress(InputError, OSError):
            Index(artifact, FORMS[kind])


@dataclass(frozen=True)
class Stamp:
    """By which a file is known to be untouched."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, file: BinaryIO) -> Stamp:
        stat = os.fstat(file.fileno())
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)


class _Kept(BaseModel, Generic[Kept]):
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
    """The rows of an artifact, as they are when it is opened; `update` looks again.

    Attributes:
        path: the artifact.

    Raises:
        InputError: a line is damaged, or the file is not there.
    """

    def __init__(self, path: Path, form: Form[E]) -> None:
        self.path = path
        self.form = form
        self._forget()
        kept = self._load()
        self.update()
        if (self._stamp, self._covered) != kept and self._covered >= WORTH_KEEPING:
            self._save()

    def _forget(self) -> None:
        self._entries: list[E] = []
        self._last: E | None = None  # of a line without its line feed
        self._covered = 0
        self._lines = 0
        self._stamp: Stamp | None = None  # None where the file's time does not tell whether it was touched
        self._hash: Any = hashlib.sha256()  # of the covered bytes; None where this process has not read them
        self._kept_sum = ""  # what is said of them where that is so
        self._tail = b""

    @property
    def entries(self) -> list[E]:
        """In the file's order."""
        return self._entries if self._last is None else [*self._entries, self._last]

    def update(self, *, appended: bool = False) -> bool:
        """Look at the file again; whether the entries are others now.

        Args:
            appended: nobody does anything to the file but append to it.

        Raises:
            InputError: as on opening.
        """
        now = time.time()
        try:
            with self.path.open("rb") as file:
                stamp = Stamp.of(file)
                if stamp == self._stamp and (self._hash is not None or stamp.size == self._covered):
                    return False
                before = (len(self._entries), self._last)
                known = self._is_covered(file, stamp.size, appended=appended)
                if not known:
                    self._forget()
                self._read_on(file)
        except OSError as error:
            raise InputError(f"The file cannot be read: {error.strerror}.", path=self.path) from error
        settled = stamp.mtime_ns / 1e9 < now - CLOCK_SLACK
        self._stamp = stamp if settled else None
        return not known or before != (len(self._entries), self._last)

    def line(self, entry: E) -> bytes:
        """The line of an entry, read now.

        Raises:
            InputError: it is not what the entry tells of it any more.
        """
        with suppress(OSError, ValidationError), self.path.open("rb") as file:
            file.seek(entry.offset)
            line = file.read(entry.length)
            if self.form.row.model_validate_json(line).entry(entry.offset, entry.length) == entry:
                return line
        what = f"The row of {entry.id} is not where it was: the file was changed in the meantime."
        raise InputError(what, path=self.path, fix="open it again")

    def _is_covered(self, file: BinaryIO, size: int, *, appended: bool) -> bool:
        """Whether the file begins with the covered bytes."""
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
        if left or found.hexdigest() != self._sum():
            return False
        self._hash, self._tail = found, chunk[-TAIL:]
        return True

    def _sum(self) -> str:
        return self._kept_sum if self._hash is None else str(self._hash.hexdigest())

    def _read_on(self, file: BinaryIO) -> None:
        """Parse what follows the covered bytes."""
        self._last = None
        file.seek(self._covered)
        for line in file:
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
        """Take up the kept index, whose stamp and reach are returned; whatever is wrong with it, it counts as none."""
        try:
            content = index_path(self.path).read_bytes()
            kept = _Kept[self.form.entry].model_validate_json(content)  # type: ignore[name-defined]
        except (OSError, ValidationError):
            return None
        if (kept.version, kept.kind) != (VERSION, self.form.kind):
            return None
        self._entries, self._covered, self._lines = kept.entries, kept.covered, kept.lines
        self._kept_sum, self._hash, self._stamp = kept.sum, None, kept.stamp
        return kept.stamp, kept.covered

    def _save(self) -> None:
        kept = _Kept[Any](
            version=VERSION,
            kind=self.form.kind,
            stamp=self._stamp,
            covered=self._covered,
            lines=self._lines,
            sum=self._sum(),
            entries=self._entries,
        )
        place = index_path(self.path)
        with suppress(OSError):
            write_whole(place, kept.model_dump_json().encode())
            for orphan in place.parent.glob(f".{glob.escape(place.name)}.*{UNFINISHED}"):
                if time.time() - orphan.stat().st_mtime > ABANDONED:
                    orphan.unlink()
