"""How work ends: every exception becomes a panel on stderr and an exit code (`sweet.errors` lists them)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from sweet.cli import console
from sweet.errors import Interrupted, SweetError, UsageError


def ended(work: Callable[[], int], *, debug: bool = False) -> int:
    """Do the work and return its exit code, or that of the exception it ended with, which is told."""
    try:
        return work()
    except BrokenPipeError:  # the reader of stdout is gone (`| head`)
        console.drop_output()
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            console.show_traceback(error)
        told = meant_for_the_user(error)
        if told is None:
            console.show_bug(error)
            return SweetError.exit_code
        console.show_error(told)
        return told.exit_code


def meant_for_the_user(error: BaseException) -> SweetError | None:
    """The error in our own words; None where nobody has words for it, which is a bug."""
    if isinstance(error, SweetError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("Stopped.")
    if isinstance(error, OSError):
        return _of_the_system(error)
    return None


_MENDS = {
    errno.ENOSPC: "free some space (sweet status --all shows what runs take), then run the same command again",
    errno.EDQUOT: "free some of your quota, then run the same command again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), then run the same command again",
    errno.EROFS: "make the file system writable, or copy the run to where you may write",
    errno.EACCES: "give yourself the right to it, or work on a copy",
    errno.EPERM: "give yourself the right to it, or work on a copy",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "look at the disk, then run the same command again",
}


def _of_the_system(error: OSError) -> SweetError | None:
    """An error of the system that has a file or a cure; without both it is ours to explain."""
    mend = _MENDS.get(error.errno or 0)
    if error.filename is None and mend is None:
        return None if _is_somewhere() else UsageError("The current folder has been deleted.", fix="cd to another one")
    return SweetError(f"{error.strerror or error}.", where=error.filename, fix=mend)


def _is_somewhere() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True
