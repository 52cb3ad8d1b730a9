"""An index of a JSONL artifact, so that a viewer does not have to read the whole file.

It holds the position of each row and the fields that a list shows. Who opens a large artifact first keeps it in a
hidden file next to that. It is never required: if it is missing, damaged, or cannot be written (a read-only run), it is
made in memory.

A saved index is valid if the file has the same size, modification time and inode as when the index was made. None is
saved of a file that was modified within the resolution of the clock, as a later change might leave it the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sweet.errors import InputError
from sweet.files import unfinished, write_whole
from sweet.regular import open_regular, read_regular
from sweet.runs.content import CLOCK_SLACK
from sweet.runs.entries import E, Form
from sweet.runs.jsonl import LONGEST_LINE, bounded_lines, is_object, parse_row

VERSION = 3
"""Incremented when the content of an index changes."""
WORTH_KEEPING = 1 << 20
"""Artifacts with fewer bytes are read quickly, and no index is kept."""
ABANDONED = 60.0
"""Seconds after which an unfinished temporary file of an index is removed."""
LARGEST = 1 << 30
"""Most bytes of an index that are read: those of some million rows."""

Kept = TypeVar("Kept")


def index_path(artifact: Path) -> Path:
    return artifact.with_name(f".{artifact.name}.index")


Stamp = tuple[int, int, int]
"""Identifies the state of a file: its size, its modification time in nanoseconds, and its inode."""


class _SavedIndex(BaseModel, Generic[Kept]):
    """The content of the hidden file."""

    model_config = ConfigDict(extra="forbid")

    version: int
    kind: str
    stamp: Stamp
    entries: list[Kept]


class Index(Generic[E]):
    """The rows of an artifact, as they are when it is opened.

    Attributes:
        path: the artifact.
        entries: in the file's order.

    Raises:
        InputError: a line is damaged, or the file does not exist.
    """

    def __init__(self, path: Path, form: Form[E]) -> None:
        self.path, self.form = path, form
        now = time.time()
        try:
            with open_regular(path) as file:
                found = os.fstat(file.fileno())
                stamp = found.st_size, found.st_mtime_ns, found.st_ino
                saved = self._saved(stamp)
                self.entries = list(self._read(file)) if saved is None else saved
        except OSError as error:
            raise InputError(f"The file cannot be read: {error.strerror}.", path=path) from error
        if saved is None and found.st_size >= WORTH_KEEPING and found.st_mtime < now - CLOCK_SLACK:
            self._save(stamp)

    def line(self, entry: E) -> bytes:
        """Read the line of an entry.

        Raises:
            InputError: it no longer matches the entry.
        """
        with suppress(OSError, ValueError), open_regular(self.path) as file:
            file.seek(entry.offset)
            line = file.read(max(0, min(entry.length, LONGEST_LINE)))  # a saved index may say anything
            if self.form.of(self.form.row.model_validate_json(line), entry.offset, entry.length) == entry:
                return line
        what = f"The row of {entry.id} is not where it was: the file was changed in the meantime."
        raise InputError(what, path=self.path, fix="open it again")

    def _read(self, file: BinaryIO) -> Iterator[E]:
        """Parse the lines. The last one may be torn."""
        offset = 0
        for number, line in enumerate(bounded_lines(file, self.path), 1):
            if not line.isspace() and (line.endswith(b"\n") or is_object(line)):
                row = parse_row(line, self.form.row, self.path, number)
                yield self.form.of(row, offset, len(line.removesuffix(b"\n")))
            offset += len(line)

    def _saved(self, stamp: Stamp) -> list[E] | None:
        """Return the entries of the saved index; None if it is missing or invalid."""
        try:
            content = read_regular(index_path(self.path), LARGEST)
            kept = _SavedIndex[self.form.entry].model_validate_json(content)  # type: ignore[name-defined]
        except (OSError, ValidationError):
            return None
        known = (kept.version, kept.kind, kept.stamp) == (VERSION, self.form.kind, stamp)
        return kept.entries if known else None

    def _save(self, stamp: Stamp) -> None:
        saved = _SavedIndex[Any](version=VERSION, kind=self.form.kind, stamp=stamp, entries=self.entries)
        path = index_path(self.path)
        with suppress(OSError):
            write_whole(path, saved.model_dump_json().encode())
            for orphan in unfinished(path):
                if time.time() - orphan.stat().st_mtime > ABANDONED:
                    orphan.unlink()
