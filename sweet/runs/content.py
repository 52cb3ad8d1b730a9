"""The content of an artifact, a file or a folder: its size, its sha256, and whether it has changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweet.files import sync_folder
from sweet.regular import check_any, files_below, open_descriptor, open_regular
from sweet.runs.manifest import Artifact
from sweet.units import count

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
        try:
            size = size_of(path)
        except FileNotFoundError:
            return None
        if size != artifact.bytes:
            return count(size, "byte")
    return current_sha256(path, artifact)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    return sum(file.stat().st_size for file in (files_below(path) if path.is_dir() else [path]))
