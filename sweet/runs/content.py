"""The content of an artifact, a file or a folder: its size, its sha256, and whether it is still what was recorded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweet.runs.manifest import Artifact

CLOCK_SLACK = 0.02
"""Seconds by which a file's time may lag behind the clock that an artifact's is taken from."""


@dataclass(frozen=True)
class Content:
    """sha256 of a file is that of its bytes; of a folder, that of a list of its files' names and sums."""

    sha256: str
    bytes: int


def measure(path: Path) -> Content:
    """Read all of a file or folder.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_dir():
        return Content(_sum(path), path.stat().st_size)
    whole, size = hashlib.sha256(), 0
    for file in _files(path):
        whole.update(f"{_sum(file)}  {file.relative_to(path).as_posix()}\n".encode("utf-8", "surrogateescape"))
        size += file.stat().st_size
    return Content(whole.hexdigest(), size)


def make_durable(path: Path) -> None:
    """Bring a file, or a folder's files, to the disk."""
    for file in _files(path) if path.is_dir() else [path]:
        handle = os.open(file, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def current_sum(path: Path, artifact: Artifact) -> str | None:
    """sha256 of the content as it is now; None where the file is gone or was never finished.

    All is read only where the size differs from what was recorded, or something was written since.
    """
    if artifact.sha256 is None or artifact.finished is None or not path.exists():
        return None
    try:
        files = [file.stat() for file in (_files(path) if path.is_dir() else [path])]
        touched = max(stat.st_mtime for stat in [path.stat(), *files]) >= artifact.finished.timestamp() - CLOCK_SLACK
        if touched or sum(stat.st_size for stat in files) != artifact.bytes:
            return measure(path).sha256
    except FileNotFoundError:
        return None
    return artifact.sha256


def alteration(path: Path, artifact: Artifact) -> str | None:
    """What has happened to an artifact's content since it was finished; None where nothing has."""
    if artifact.sha256 is None:
        return None
    changed = f"{artifact.path} was changed since it was finished"
    if path.is_file() and path.stat().st_size != artifact.bytes:
        return changed  # without reading it: one that goes on being written is asked about again and again
    now = current_sum(path, artifact)
    if now is None:
        return f"{artifact.path} is not there any more"
    return None if now == artifact.sha256 else changed


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, in one order everywhere."""
    yield from sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.parts)


def _sum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
