"""The content of an artifact, a file or a folder: its size, its sha256, and whether it has changed.

Before an artifact is read its size is looked up and its rows are counted every time, which costs little beside parsing
them. The sha256 of a large file is computed once for its path, size, modification time and inode (sweet.runs.cache).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sweet.errors import InputError
from sweet.files import sync_folder
from sweet.regular import check_any, check_file, files_below, open_descriptor, open_regular
from sweet.runs.cache import cached_sha256
from sweet.runs.jsonl import bounded_lines, is_object
from sweet.runs.manifest import Artifact
from sweet.units import count

_WORTH_CACHING = 1 << 20
"""Bytes from which reading a file takes longer than looking up its sum."""
CLOCK_SLACK = 0.02
"""Seconds by which the modification time of a file may be behind the system clock."""


@dataclass(frozen=True)
class Content:
    """The sha256 of a file is that of its bytes; that of a folder, of a list of its files with their sha256."""

    sha256: str
    bytes: int


def file_sha256(file: Path) -> str:
    """Read all of a file. See `sweet.regular.open_regular` for errors."""
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def measure(path: Path, sum_of: Callable[[Path], str] = file_sha256) -> Content:
    """Read all of a file or folder.

    Args:
        sum_of: returns the sha256 of one file.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_dir():
        return Content(sum_of(path), path.stat().st_size)
    whole, size = hashlib.sha256(), 0
    for file in files_below(path):
        whole.update(f"{sum_of(file)}  {file.relative_to(path).as_posix()}\n".encode("utf-8", "surrogateescape"))
        size += file.stat().st_size
    return Content(whole.hexdigest(), size)


def make_durable(path: Path) -> None:
    """Flush a file, or all files and folders below a folder, to the disk, and the folder that holds it."""
    for file in files_below(path) if path.is_dir() else [path]:
        handle = open_descriptor(file, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    for folder, _, _ in os.walk(path, topdown=False):
        sync_folder(Path(folder))
    sync_folder(path.parent)


def current_sha256(path: Path, artifact: Artifact) -> str | None:
    """Return the sha256 of the current content; None if the file does not exist or was never finished.

    The content is read only if the size differs from the record, or a file was modified since.
    """
    if artifact.sha256 is None or artifact.finished is None or not path.exists():
        return None
    try:
        files = [file.stat() for file in (files_below(path) if path.is_dir() else [path])]
        touched = max(stat.st_mtime for stat in [path.stat(), *files]) >= artifact.finished.timestamp() - CLOCK_SLACK
        if touched or sum(stat.st_size for stat in files) != artifact.bytes:
            return measure(path).sha256
    except FileNotFoundError:
        return None
    return artifact.sha256


def current_content(path: Path, artifact: Artifact) -> str | None:
    """Return what identifies the current content, for comparison with a sha256; None as `current_sha256`.

    A content of another size than recorded is another, and is not read: it may be of any size.
    """
    if artifact.sha256 is not None and artifact.bytes and path.exists():
        check_any(path)
        if (size := size_of(path)) != artifact.bytes:
            return count(size, "byte")
    return current_sha256(path, artifact)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 if it does not exist. Links are not followed, files
    that vanish meanwhile skipped."""
    size = 0
    for file in files_below(path) if path.is_dir() else [path]:
        with suppress(OSError):
            size += file.lstat().st_size
    return size


def check_size(path: Path, artifact: Artifact, again: str) -> None:
    """Check that an artifact has the size with which it was finished. Without a record of it nothing is checked.

    Args:
        again: what makes it again.

    Raises:
        InputError: it has another size, or is not a regular file, or a folder of these.
    """
    check_any(path)
    if artifact.sha256 is None or not artifact.bytes:
        return
    if (size := size_of(path)) != artifact.bytes:
        _check_rows(path, artifact, again)
        raise _changed(path, artifact, f"it has {size:,} of {artifact.bytes:,} bytes", again)


def check_content(path: Path, artifact: Artifact, again: str, *, sums: bool) -> None:
    """Check that an artifact has the size and the rows with which it was finished, and its sha256.

    Args:
        again: what makes it again.
        sums: whether its sha256 is computed.

    Raises:
        InputError: it is another, or is not a regular file, or a folder of these.
    """
    check_size(path, artifact, again)
    if artifact.sha256 is None:
        return
    _check_rows(path, artifact, again)
    if sums and measure(path, _sum).sha256 != artifact.sha256:
        as_it_is = f"{again}; --no-verify uses it as it is"
        raise _changed(path, artifact, "its size is the same and its sha256 is another", as_it_is)


def _check_rows(path: Path, artifact: Artifact, again: str) -> None:
    """Count the rows of a file as `read_jsonl` does, without empty lines and a torn last one."""
    if artifact.rows is None:
        return
    with open_regular(path) as file:
        lines = bounded_lines(file, path)
        rows = sum(not line.isspace() and (line.endswith(b"\n") or is_object(line)) for line in lines)
    if rows != artifact.rows:
        raise _changed(path, artifact, f"it has {rows:,} of {artifact.rows:,} rows", again)


def _sum(file: Path) -> str:
    check_file(file)
    return cached_sha256(file, file_sha256) if file.stat().st_size >= _WORTH_CACHING else file_sha256(file)


def _changed(path: Path, artifact: Artifact, how: str, again: str) -> InputError:
    what = f"{artifact.id} is not as it was finished: {how}."
    return InputError(what, path=path, fix=f"restore it from a copy, or make it again: {again}")
