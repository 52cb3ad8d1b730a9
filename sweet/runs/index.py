"""An index of a JSONL artifact: the position of each row and the fields that a list shows, without the rows.

It is made when the file is opened, and a whole row is read from its position on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Generic

from sweet.errors import InputError
from sweet.regular import open_regular
from sweet.runs.entries import E, Form
from sweet.runs.jsonl import bounded_lines, is_object, parse_row


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
        try:
            with open_regular(path) as file:
                self.entries = list(self._read(file))
        except OSError as error:
            raise InputError(f"The file cannot be read: {error.strerror}.", path=path) from error

    def line(self, entry: E) -> bytes:
        """Read the line of an entry.

        Raises:
            InputError: it no longer matches the entry.
        """
        with suppress(OSError, ValueError), open_regular(self.path) as file:
            file.seek(entry.offset)
            line = file.read(entry.length)
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
