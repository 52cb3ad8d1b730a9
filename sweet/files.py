"""Atomic writing of files: a file appears complete, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sweet.errors import UsageError

UNFINISHED = ".new"
"""Suffix of a temporary file that an interrupted `write_whole` leaves behind."""


def check_target(path: Path) -> None:
    """Check that a file named by the user can be written, before any work is done for it.

    Raises:
        UsageError: it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise UsageError("This is a folder, not a file.", where=path, fix="name a file in it")
    if not path.parent.is_dir():
        raise UsageError("The folder of the file does not exist.", where=path.parent, fix=f"mkdir -p {path.parent}")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file named by the user: it appears when the block ends normally and is discarded if the block raises.

    A path that is not a regular file (a pipe, `/dev/stdout`) is written directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, creating its folder. Several processes may write the same file concurrently.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
