"""The user's cache folder, for results that can be computed again.

Any process may write there at any time, so files are replaced whole, and readers check what they read. Nothing in it is
required: without a writable folder, only time is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from sweet.files import write_whole
from sweet.paths import cache_folder

_SETTLED = 2.0
"""Seconds after which a file's modification time identifies its content: a later change within the resolution of the
clock would not show."""
_DIGESTS = "sums"
_MAX_DIGEST_BYTES = 1 << 20
"""Bytes of cached digests: about ten thousand."""


def prune(folder: Path, max_bytes: int, ours: Callable[[Path], bool]) -> None:
    """Remove the least recently modified files in `folder` that are `ours`, once they take more than `max_bytes`.

    They are removed until the rest takes at most nine tenths of it.
    """
    with contextlib.suppress(OSError):
        files = [(path, path.stat()) for path in folder.rglob("*") if path.is_file() and ours(path)]
        size = sum(stat.st_size for _, stat in files)
        if size <= max_bytes:
            return
        for path, stat in sorted(files, key=lambda item: item[1].st_mtime):
            path.unlink(missing_ok=True)
            size -= stat.st_size
            if size <= max_bytes * 9 // 10:
                return


def cached_sha256(path: Path, read: Callable[[Path], str]) -> str:
    """Return the sha256 of a file, which is read once for each (path, size, modification time, inode).

    Args:
        read: returns the sha256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    resolved = path.resolve()
    stat = resolved.stat()
    name = hashlib.sha256(f"{resolved}\n{stat.st_size}\n{stat.st_mtime_ns}\n{stat.st_ino}".encode("utf-8", "replace"))
    memo = cache_folder(_DIGESTS) / f"{name.hexdigest()}.sum"
    with contextlib.suppress(OSError, ValueError):
        digest, check = memo.read_text(encoding="ascii").split()
        if check == _check(digest):
            return digest
    sha256 = read(resolved)
    if time.time() - stat.st_mtime > _SETTLED:
        with contextlib.suppress(OSError):
            write_whole(memo, f"{sha256} {_check(sha256)}\n".encode())
            prune(memo.parent, _MAX_DIGEST_BYTES, lambda file: file.suffix == ".sum")
    return sha256


def _check(digest: str) -> str:
    return hashlib.sha256(digest.encode()).hexdigest()[:16]
