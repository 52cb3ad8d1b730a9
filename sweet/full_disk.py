"""Recognises that a disk is full or faulty in whatever exception a library made of it.

`torch.save` and others raise an error of their own while they handle that of the system, which remains in the chain of
the exception; libraries in Rust (safetensors, tokenizers) put the system's number into their text.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from sweet.errors import AGAIN, SweetError

_FULL = {
    errno.ENOSPC: ("The disk is full", "free some space (sweet status RUN shows the size of a run)"),
    errno.EDQUOT: ("The disk quota is used up", "free some of your quota"),
    errno.EFBIG: (
        "A file reached the largest size that is allowed",
        "raise the limit on the size of files (ulimit -f)",
    ),
    errno.EIO: ("The disk failed", "check the disk"),
}
_IN_TEXT = re.compile(r"\(os error (\d{1,4})\)")


def full_disk(error: BaseException, where: Path | None = None) -> SweetError | None:
    """Return the error that says that a disk is full or faulty; None if that is not the cause.

    Args:
        where: what was written to, if the exception does not name it.
    """
    if isinstance(error, SweetError) or not isinstance(error, Exception):
        return None
    for found in _causes(error):
        number, file = _number(found)
        if number in _FULL:
            what, fix = _FULL[number]
            return SweetError(f"{what}: {os.strerror(number)}.", where=file or where, fix=f"{fix}, then {AGAIN}")
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, those of its group, and what they were raised from."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += [found.__context__, found.__cause__]
            if isinstance(found, BaseExceptionGroup):
                waiting += found.exceptions


def _number(error: BaseException) -> tuple[int, str | None]:
    """Return the system's number of an exception, 0 if it has none, and the file that it names."""
    if isinstance(error, OSError):
        return error.errno or 0, error.filename
    named = _IN_TEXT.search(str(error))
    return int(named[1]) if named else 0, None
