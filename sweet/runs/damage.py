"""What a loss of power leaves of a file of rows that was not finished, and how its stage goes on with it.

A loss of power takes what was not flushed to the disk, and may leave anything in its place: zeros, bytes of another
file, a block twice. A row is whole if it is one of those whose sums the writer has noted (`sweet.runs.jsonl`), and
validates. The others, and repetitions, are dropped before the stage goes on, which makes them again. Where the file of
the sums is lost, rows that validate are kept. The first row of a session is written after its branches: branches
without it are those of a session that was being written, and are dropped too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sweet.files import replaced, sync_folder, write_whole
from sweet.regular import open_regular, read_regular
from sweet.runs.jsonl import LONGEST_LINE, sum_of, sums_path
from sweet.units import count

T = TypeVar("T", bound=BaseModel)

_LARGEST_SUMS = 1 << 28
"""Bytes of the sums of 15 million rows."""


def whole_rows(path: Path, row: type[T]) -> Iterator[T]:
    """Yield the rows of a file that is not finished, without those that are damaged."""
    with open_regular(path) as file:
        for line in iter(partial(file.readline, LONGEST_LINE + 1), b""):
            with suppress(ValidationError):
                yield row.model_validate_json(line)


def drop_damaged(path: Path, row: type[BaseModel], warn: Callable[[str], None]) -> None:
    """Drop the rows of a file, which need not exist, that are damaged or there twice, and note the sums of the others.

    Args:
        row: the form of its rows. warn: is told how many were lost.
    """
    noted: set[bytes] | None = None
    with suppress(FileNotFoundError):
        noted = {line for line in read_regular(sums_path(path), _LARGEST_SUMS).split(b"\n") if len(line) == 16}
    places: dict[bytes, tuple[int, int, str | None]] = {}
    names: set[str | None] = {None}
    lines = end = 0
    with suppress(FileNotFoundError), open_regular(path) as file:
        for line in iter(partial(file.readline, LONGEST_LINE + 1), b""):
            begin, end = end, end + len(line)
            lines += not line.isspace()
            sum_ = sum_of(line)
            with suppress(ValidationError):
                parsed = row.model_validate_json(line)
                if noted is None or sum_ in noted:
                    places.setdefault(sum_, (begin, len(line), getattr(parsed, "session", None)))
                    names.add(getattr(parsed, "id", None))
        places = {sum_: place for sum_, place in places.items() if place[2] in names}
        if len(places) != lines:
            with replaced(path, durable=True, alone=True) as new:
                for begin, length, _ in places.values():
                    file.seek(begin)
                    new.write(file.read(length).removesuffix(b"\n") + b"\n")
            sync_folder(path.parent)
    write_whole(sums_path(path), b"".join(sum_ + b"\n" for sum_ in places))
    if lost := max(lines - len(places), len((noted or set()).difference(places))):
        left = "damaged or missing, as a loss of power leaves a file: dropped, and their work is done again."
        warn(f"{path.name}: {count(lost, 'row')} {left}")
