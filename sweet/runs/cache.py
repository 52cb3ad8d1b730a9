"""The user's cache folder: what can be computed again, kept for whoever asks next.

Any process may write there at any time, so files are replaced whole and readers check what they read. Nothing in it is
needed: a folder that cannot be written only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from sweet.files import write_whole
from sweet.runs.content import measure

_SETTLED = 2.0
"""Seconds after which a file's time tells its content: one that is younger may be changed within the clock's grain."""
_MEMO = "sums"
_MOST_SUMS = 1 << 20
"""Bytes of remembered sums: some ten thousand."""


def cache_folder(what: str) -> Path:
    """Where things of one kind are kept: under `$SWEET_CACHE`, else the user's cache folder."""
    given = os.environ.get("SWEET_CACHE")
    if given:
        return Path(given).expanduser() / what
    general = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (general if general.is_absolute() else Path.home() / ".cache") / "sweet" / what


def prune(folder: Path, most_bytes: int, ours: Callable[[Path], bool]) -> None:
    """Remove the least recently touched files below `folder` that are `ours` until they take nine tenths of the most.

    Nothing happens while they take no more than `most_bytes`.
    """
    with contextlib.suppress(OSError):
        files = [(path, path.stat()) for path in folder.rglob("*") if path.is_file() and ours(path)]
        size = sum(stat.st_size for _, stat in files)
        if size <= most_bytes:
            return
        for path, stat in sorted(files, key=lambda item: item[1].st_mtime):
            path.unlink(missing_ok=True)
            size -= stat.st_size
            if size <= most_bytes * 9 // 10:
                return


def remembered_sum(path: Path) -> str:
    """sha256 of a file's bytes, read once for each (place, size, time of change).

    Raises:
        OSError: it cannot be read.
    """
    place = path.resolve()
    stat = place.stat()
    name = hashlib.sha256(f"{place}\n{stat.st_size}\n{stat.st_mtime_ns}\n{stat.st_ino}".encode("utf-8", "replace"))
    memo = cache_folder(_MEMO) / f"{name.hexdigest()}.sum"
    with contextlib.suppress(OSError, ValueError):
        told, check = memo.read_text(encoding="ascii").split()
        if check == _check(told):
            return told
    found = measure(place).sha256
    if time.time() - stat.st_mtime > _SETTLED:
        with contextlib.suppress(OSError):
            write_whole(memo, f"{found} {_check(found)}\n".encode())
            prune(memo.parent, _MOST_SUMS, lambda file: file.suffix == ".sum")
    return found


def _check(told: str) -> str:
    return hashlib.sha256(told.encode()).hexdigest()[:16]
