"""Turns every exception into a panel on stderr and an exit code (`sweet.errors` lists them).

With `--json` the failure is an object on stdout, too: `{"error", "where", "fix", "exit_code"}`. A call prints one
object, so what it found in spite of the failure has these keys besides its own, and a failure after the result has been
printed adds none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

from sweet.cli import console
from sweet.cli.declaration import env_prefix
from sweet.cli.environment import YES
from sweet.errors import Interrupted, SweetError, UsageError
from sweet.full_disk import full_disk


def asks_for_json(words: Sequence[str]) -> bool:
    """Return whether the words of a call, which may be invalid, or the variable of its command ask for `--json`."""
    own = list(takewhile(lambda word: word != "--", words))
    variables = (f"{env_prefix(' '.join(own[:count]))}_JSON" for count in (1, 2))
    return "--json" in own or any(os.environ.get(name, "").strip().lower() in YES for name in variables)


def exit_code_of(work: Callable[[], int], *, debug: bool = False, as_json: bool = False) -> int:
    """Do the work and return its exit code. An exception is shown, and its exit code is returned."""
    before = console.printed()
    try:
        return work()
    except BrokenPipeError:  # the reader of stdout is gone (`| head`)
        console.drop_output()
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            console.show_traceback(error)
        known = as_sweet_error(error)
        if known is None:
            console.show_bug(error)
        else:
            console.show_error(known)
        if as_json and console.printed() == before:
            console.print_error(error, known)
        return SweetError.exit_code if known is None else known.exit_code


def as_sweet_error(error: BaseException) -> SweetError | None:
    """Return the error as one of `sweet`; None if it is a bug."""
    if isinstance(error, SweetError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("Stopped.")
    if (full := full_disk(error)) is not None:
        return full
    if isinstance(error, OSError):
        return _from_os_error(error)
    return None


_FIXES = {
    errno.EROFS: "make the file system writable, or copy the run to a writable one",
    errno.EACCES: "change its permissions, or work on a copy",
    errno.EPERM: "change its permissions, or work on a copy",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "check the disk, then run the same command again",
}


def _from_os_error(error: OSError) -> SweetError | None:
    """Return the error for an OSError that names a file or has a known fix; None otherwise, as that is a bug."""
    fix = _FIXES.get(error.errno or 0)
    if error.filename is None and fix is None:
        return (
            None
            if _has_working_directory()
            else UsageError("The current folder has been deleted.", fix="cd to another one")
        )
    return SweetError(f"{error.strerror or error}.", where=error.filename, fix=fix)


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True
