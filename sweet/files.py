"""Atomic writing of files: a file appears complete, or not at all. In a run no link is followed (sweet.regular)."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sweet.errors import UsageError
from sweet.regular import check_file, in_run, place_of

UNFINISHED = ".new"
"""Suffix of the temporary files, which a killed process leaves behind."""


def check_target(path: Path) -> None:
    """Check that a file named by the user can be written, before any work is done for it.

    Raises:
        UsageError: it is a folder, or its folder does not exist; or in a run, it is no regular file or a link.
    """
    if path.is_dir():
        raise UsageError("This is a folder, not a file.", where=path, fix="name a file in it")
    if not path.parent.is_dir():
        raise UsageError("The folder of the file does not exist.", where=path.parent, fix=f"mkdir -p {path.parent}")
    inside = in_run(path)
    if inside is not None:
        check_file(inside)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file named by the user: it appears when the block ends normally and is discarded if the block raises.

    Outside of runs, a path that is not a regular file (a pipe, `/dev/stdout`) is written directly, and of a link the
    file that it leads to is replaced.

    Raises:
        InputError: it is in a run, and not a regular file or reached over a link.
    """
    inside = in_run(path)
    if inside is None and path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve() if inside is None else inside
    with replaced(target) as file:
        yield file


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, creating its folder. Several processes may write the same file concurrently.

    Raises:
        InputError: it is in a run, and not a regular file or reached over a link.
        OSError: it cannot be written.
    """
    with replaced(path, make_folders=True) as file:
        file.write(content)


@contextmanager
def replaced(
    path: Path, *, make_folders: bool = False, durable: bool = False, alone: bool = False
) -> Iterator[BinaryIO]:
    """Yield a new file beside `path` under a random name, which takes its place when the block ends normally.

    Args:
        alone: whether no other process writes this file now: what killed ones have left behind is removed first.
        durable: whether its content is flushed to the disk before.

    Raises:
        InputError: in a run, the path or a folder on the way is a link, or something else that is not a file.
        OSError: it cannot be written.
    """
    with place_of(path, make_folders=make_folders) as place:
        place.check()
        for orphan in unfinished(path) if alone else ():
            place.beside(orphan.name).unlink()
        new = place.beside(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
        try:
            with os.fdopen(new.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            new.replace(place)
        finally:
            new.unlink()


def unfinished(path: Path) -> list[Path]:
    """Return the temporary files of a file: those that are being written, and those that killed processes left."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
