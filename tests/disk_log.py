"""A log of what a process does that decides what a loss of power leaves: writes, flushes to the disk and renames.

The tests do not flush to the disk (`tests.conftest`); `recorded` notes each flush that the program asks for, in the
order of the other events.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Event = tuple[str, str]
"""`fsync`, `fdatasync`, `write` or `replace`, and the path of the file or folder, relative to the folder of the log."""


@contextmanager
def recorded(folder: Path) -> Iterator[list[Event]]:
    """Yield the events below a folder, which are added as they happen. Names of temporary files become `TEMPORARY`."""
    log: list[Event] = []
    root = folder.resolve()

    def named(descriptor: int) -> Path:
        return Path(f"/proc/self/fd/{descriptor}").readlink()

    def note(event: str, path: Path) -> None:
        if path.is_relative_to(root):
            below = path.relative_to(root)
            is_temporary = below.name.startswith(".") or below.name.endswith(".part")
            log.append((event, (below.parent / "TEMPORARY" if is_temporary else below).as_posix()))

    def by_descriptor(event: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(file: Any, *arguments: Any) -> Any:
            note(event, named(file if isinstance(file, int) else file.fileno()))
            return call(file, *arguments)

        return called

    def replaced(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        note("replace", Path(target).absolute() if dst_dir_fd is None else named(dst_dir_fd) / target)
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    replace = os.replace
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, by_descriptor(name, getattr(os, name)))
        patch.setattr(os, "write", by_descriptor("write", os.write))
        patch.setattr(os, "replace", replaced)
        yield log
