"""Writing a file: it appears whole, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sweet.errors import UsageError

UNFINISHED = ".new"
"""What the name of a file ends in that `write_whole` was stopped at."""


def check_target(path: Path) -> None:
    """UsageError where somebody named a file that cannot be written, before any work is done for it."""
    if path.is_dir():
        raise UsageError("This is a folder, not a file.", where=path, fix="name a file in it")
    if not path.parent.is_dir():
        raise UsageError("The folder of the file is not there.", where=path.parent, fix=f"mkdir -p {path.parent}")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write in the place that somebody named: there when the block ends well, gone when it does not.

    What is no ordinary file (a pipe, `/dev/stdout`) is written to directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of ours that other processes see whole or not at all; any of them may write it too. Its folder is
    made.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
