"""JSON Lines: append-only files of this program, and rows of files from outside.

A writer appends whole lines. If a process is killed or a disk is full, at most the last line of the file is torn: it
has no line feed and is not a whole JSON object (the beginning of an object never is one). Readers ignore it and a
writer removes it, so that the row is written again. A last line that lacks only its line feed is whole and is kept.

A writer flushes its rows to the disk every few seconds, so that a loss of power takes only those of the last ones. For
a file that may be resumed it notes the sum of each row in a hidden file before it writes the row; see
`sweet.runs.damage`.

A line has at most `LONGEST_LINE` bytes, so that a file without line feeds does not fill the memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import jsonlines
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from sweet.errors import InputError, UsageError
from sweet.regular import make_folder, open_descriptor, open_regular
from sweet.suggestions import did_you_mean

T = TypeVar("T", bound=BaseModel)

LONGEST_LINE = 1 << 26
"""Most bytes of a row: 64 MiB. The largest rows that stages write, the candidates of a turn with long pages, have a few
megabytes."""

FLUSH_SECONDS = 5.0
"""How long a row may be written before it is flushed to the disk."""

TO_JSON_LINES = "a file of JSON Lines, not compressed, as Dataset.to_json(FILE) of Hugging Face's datasets writes it"
_BINARY = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh")
"""How files of Parquet and Arrow begin, streams of Arrow, and what gzip, zstd, zip and bzip2 made."""
_ONE_A_LINE = "one JSON object per line"
_FROM_A_COPY = (
    "resume its stage if that is not finished; else restore the file from a copy, or make it again: artifacts made "
    "from it are stale then"
)


def read_jsonl(path: Path, model: type[T]) -> Iterator[T]:
    """Yield the rows of a file that a stage wrote. A torn last line is ignored.

    Raises:
        InputError: the file does not exist, or a line is damaged or not a row of this model; names the line.
    """
    for number, line in _lines(path, open_regular):
        if not line.strip() or (not line.endswith(b"\n") and not is_object(line)):
            continue
        yield parse_row(line, model, path, number)


def parse_row(line: bytes, model: type[T], path: Path, number: int | None = None) -> T:
    """Return the row of a line that a stage wrote.

    Raises:
        InputError: it is damaged or not a row of this model; names the line by its `number`.
    """
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            what = f"The line is not JSON: {first.get('ctx', {}).get('error', first['msg'])}."
        else:
            key = ".".join(str(part) for part in first["loc"]) or "row"
            what = f"{key}: {first['msg']}."
        raise InputError(what, path=path, line=number, fix=_FROM_A_COPY) from error


def scan_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file that a stage wrote, unchanged. Much faster than `read_jsonl`: rows are checked only for
    being JSON objects. A torn last line is ignored.

    Raises:
        InputError: the file does not exist, or a line is not a JSON object; names the line.
    """
    for number, line in _lines(path, open_regular):
        try:
            row = from_json(line, cache_strings="keys") if line.strip() else None
        except ValueError as error:
            if not line.endswith(b"\n"):
                return
            raise InputError(f"The line is not JSON: {error}.", path=path, line=number, fix=_FROM_A_COPY) from error
        if isinstance(row, dict):
            yield row
        elif line.strip() and line.endswith(b"\n"):
            raise InputError("The line is not a JSON object.", path=path, line=number, fix=_FROM_A_COPY)


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number (from 1) and object of each row of a file from outside. Empty lines are skipped.

    Raises:
        InputError: the file does not exist, or a line is not a JSON object; names the line.
    """
    for number, row in read_any_rows(path):
        if isinstance(row, InputError):
            raise row
        yield number, row


def read_any_rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | InputError]]:
    """Yield what `read_rows` yields, and in the place of a line that is not a JSON object its error.

    Raises:
        InputError: the file does not exist, is a binary one of another format, or a line is too long.
    """
    number = 0

    def lines() -> Iterator[bytes]:
        nonlocal number
        for position, line in _lines(path, lambda named: named.open("rb"), _ONE_A_LINE):
            if position == 1 and line.startswith(_BINARY):
                raise InputError("The file is Parquet, Arrow or compressed.", path=path, fix=TO_JSON_LINES)
            number = position
            yield line.strip()

    reader = jsonlines.Reader(lines(), loads=json.loads)  # orjson, where it is installed, rounds large numbers
    while True:
        try:
            row = reader.read(type=dict, skip_empty=True)
        except EOFError:
            return
        except jsonlines.InvalidLineError as error:
            fix = "save it as UTF-8" if isinstance(error.__cause__, UnicodeDecodeError) else _ONE_A_LINE
            wrong = InputError(_reason(error), path=path, line=number, fix=fix)
            wrong.__cause__ = error
            yield number, wrong
        except RecursionError:
            yield number, InputError("The line is nested too deeply.", path=path, line=number)
        else:
            yield number, row


def _reason(error: jsonlines.InvalidLineError) -> str:
    cause = error.__cause__
    if isinstance(cause, json.JSONDecodeError):
        return f"The line is not JSON: {cause.msg} (column {cause.colno})."
    if isinstance(cause, UnicodeDecodeError):
        return "The line is not UTF-8 text."
    if isinstance(cause, ValueError):
        return f"The line is not JSON: {cause}."
    return "The line is not a JSON object."


def _lines(path: Path, opened: Callable[[Path], BinaryIO], fix: str = _FROM_A_COPY) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines with their line feeds. Only a line feed ends a line."""
    try:
        with opened(path) as file:
            yield from enumerate(bounded_lines(file, path, fix), 1)
    except FileNotFoundError as error:
        raise no_such_file(path) from error
    except IsADirectoryError as error:
        raise InputError("This is a folder, not a file.", path=path) from error
    except PermissionError as error:
        raise InputError("The file cannot be read.", path=path, fix="make it readable for this user") from error


def bounded_lines(file: BinaryIO, path: Path, fix: str = _FROM_A_COPY) -> Iterator[bytes]:
    """Yield the lines of a file with their line feeds.

    Raises:
        InputError: a line has more than `LONGEST_LINE` bytes.
    """
    most = LONGEST_LINE
    for number, line in enumerate(iter(partial(file.readline, most + 1), b""), 1):
        if len(line) > most:
            raise InputError(f"The line has more than {most:,} bytes.", path=path, line=number, fix=fix)
        yield line


def no_such_file(path: Path) -> InputError:
    """Return the error for a file that does not exist; suggests a similar name in the same folder."""
    neighbours = map(str, path.parent.glob("*.jsonl*"))
    return InputError(f"There is no such file.{did_you_mean(str(path), neighbours)}", path=path)


def sums_path(path: Path) -> Path:
    """Return the file of the sums of the rows of a file that is not finished."""
    return path.with_name(f".{path.name}.sums")


def sum_of(line: bytes) -> bytes:
    """Return the sum of a row that is noted in that file."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()[:16].encode()


def is_object(line: bytes) -> bool:
    """Return whether a line without a line feed is whole."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


class LongRow(InputError):
    """A row that no reader would read again."""


class JsonlWriter:
    """Appends rows, each as one line that is handed to the operating system before `write` returns.

    Opening removes a torn last line. Threads may share a writer; two writers may not share a file (artifacts are locked
    by the attempt that writes them). Numbers that JSON lacks (NaN, infinities) are written as null, single surrogates
    as the replacement character. Rows are flushed to the disk after `FLUSH_SECONDS`, by another thread.

    Args:
        sums: whether the sums of rows are noted.

    Attributes:
        path: the file, which is made with its folders if it does not exist.
        rows: number of rows in the file, including those found at opening.
    """

    def __init__(self, path: Path, *, sums: bool = False) -> None:
        self.path, self._sums = path, -1
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._failed: OSError | None = None
        make_folder(path.parent)
        try:
            self._file = open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            if sums:
                self._sums = open_descriptor(sums_path(path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise UsageError(f"The file cannot be written: {error.strerror}.", where=path) from error
        self._open = True
        try:
            self.rows, self._end = self._repair()
        except BaseException:
            self.close()
            raise

    def write(self, row: dict[str, Any] | BaseModel) -> None:
        """Append one row.

        Raises:
            LongRow: it has more than `LONGEST_LINE` bytes; the file is unchanged.
            OSError: it could not be written whole; the file is unchanged. Or earlier rows could not be flushed.
        """
        value = row.model_dump(mode="json") if isinstance(row, BaseModel) else row
        line = encode(value)
        if len(line) >= LONGEST_LINE:
            raise LongRow(
                f"A row has {len(line):,} bytes; {LONGEST_LINE:,} can be read.", path=self.path, fix="less text"
            )
        with self._lock:
            if self._failed is not None:
                raise self._failed
            if self._sums >= 0:
                os.write(self._sums, b"\n" + sum_of(line) + b"\n")
            self._append(line + b"\n")
            self.rows += 1
            if self._timer is None:
                self._timer = threading.Timer(FLUSH_SECONDS, self._flush)
                self._timer.daemon = True
                self._timer.start()

    def sync(self) -> None:
        """Flush the file to the disk."""
        for file in self._files():
            os.fsync(file)

    def close(self) -> None:
        """Flush the file to the disk and close it."""
        with self._lock:
            if not self._open:
                return
            self._open, timer = False, self._timer
        if timer is not None:
            timer.cancel()
            timer.join()
        try:
            self.sync()
        finally:
            for file in self._files():
                os.close(file)

    def _files(self) -> list[int]:
        """Return the open files, the sums before the rows."""
        return [file for file in (self._sums, self._file) if file >= 0]

    def _flush(self) -> None:
        """Flush the rows, which others may write meanwhile."""
        with self._lock:
            self._timer = None
            files = [os.dup(file) for file in self._files()] if self._open else []
        for file in files:
            try:
                getattr(os, "fdatasync", os.fsync)(file)
            except OSError as error:
                self._failed = error
            finally:
                os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BaseException:
            os.ftruncate(self._file, self._end)
            raise
        self._end += len(line)

    def _repair(self) -> tuple[int, int]:
        """Remove a torn last line. Return the remaining rows and bytes."""
        rows = end = size = 0
        with open_regular(self.path) as file:
            for line in bounded_lines(file, self.path):
                size += len(line)
                if line.endswith(b"\n"):
                    end = size
                    rows += bool(line.strip())
                elif is_object(line):
                    os.write(self._file, b"\n")
                    return rows + 1, size + 1
        if end != size:
            os.ftruncate(self._file, end)
        return rows, end


def encode(value: Any) -> bytes:
    """Encode a JSON value as one line of UTF-8, without the line feed."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """Return a JSON value without floats and characters that JSON files cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
