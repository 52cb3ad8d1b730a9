"""How a call ends: exceptions become a panel on stderr and an exit code (`sweet.errors` lists them); signals.

With `--json` the failure is an object on stdout, too: `{"error", "where", "fix", "command", "exit_code"}`, with the
words of the fix in `command` where it is one command. A call prints one object, so what it found in spite of the
failure has these keys besides its own, and a failure after the result has been printed adds none.

SIGTERM and SIGHUP are treated as Ctrl-C: finished work is kept and the exit code is 130. A second Ctrl-C also stops the
clean-up; one that arrives after the error was shown ends the process at once.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from sweet import collector
from sweet.cli import console
from sweet.cli.options import variable
from sweet.errors import INTERRUPTED_BY, Interrupted, SweetError, UsageError
from sweet.full_disk import full_disk
from sweet.hints import words_of


def asks_for_json(words: Sequence[str]) -> bool:
    """Return whether the words of a call, which may be invalid, or the variable of its command ask for `--json`."""
    own_words = list(takewhile(lambda word: word != "--", words))
    variables = (variable(" ".join(own_words[:count]), "json") for count in (1, 2))
    return "--json" in own_words or any(os.environ.get(name, "").strip().lower() in _YES for name in variables)


_YES = ("1", "true", "t", "yes", "y", "on")
"""Values of the variable of a switch."""


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
        failure = as_sweet_error(error)
        console.show_error(failure)
        if as_json and console.printed() == before:  # together with what was found in spite of it
            body = {"error": failure.what, "where": failure.where, "fix": failure.fix, "command": words_of(failure.fix)}
            console.print_json({**(failure.found or {}), **body, "exit_code": failure.exit_code})
        return failure.exit_code


def as_sweet_error(error: BaseException) -> SweetError:
    """Return the error as one of `sweet`, which may say that it is a bug."""
    if isinstance(error, SweetError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted(f"Stopped by {INTERRUPTED_BY[-1]}.")
    failure = full_disk(error) or (_from_os_error(error) if isinstance(error, OSError) else None)
    if failure is None:
        failure = SweetError(
            f"{type(error).__name__}: {error}", fix="the same command with --debug, and report what it prints"
        )
        failure.title = "This is a bug in sweet"
    return failure


_FIXES = {
    errno.ENOENT: "name where it is now, if it was moved while the command ran",
    errno.ENAMETOOLONG: "a shorter name",
    errno.EROFS: "make the file system writable, or copy the run to a writable one",
    errno.EACCES: "change its permissions, or work on a copy",
    errno.EPERM: "change its permissions, or work on a copy",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}


def _from_os_error(error: OSError) -> SweetError | None:
    """Return the error for an OSError that names a file or has a known fix; None otherwise, as that is a bug."""
    fix = _FIXES.get(error.errno or 0)
    if error.filename is None and (fix is None or error.errno == errno.ENOENT):
        try:
            Path.cwd()
        except OSError:
            return UsageError("The current folder has been deleted.", fix="cd to another one")
        return None
    return SweetError(f"{error.strerror or error}.", where=error.filename, fix=fix)


TERMINATING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that are treated as Ctrl-C."""


def exit_with(work: Callable[[], int]) -> NoReturn:
    """Do the work of the process and exit with its exit code."""
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    for number in TERMINATING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _interrupt)
    atexit.register(_ignore_signals)  # only the interpreter's own shutdown remains
    try:
        code = exit_code_of(work)
        code = exit_code_of(lambda: _flush(failed=code != 0)) or code
    except KeyboardInterrupt:  # the second one
        code = Interrupted.exit_code
    if code == Interrupted.exit_code:
        signal.signal(signal.SIGINT, lambda *_: os._exit(Interrupted.exit_code))
    collector.before_exit()
    sys.exit(code)


def _interrupt(number: int, _: object) -> None:
    INTERRUPTED_BY.append(signal.Signals(number).name)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def _ignore_signals() -> None:
    for number in (*TERMINATING, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _fill_closed_streams() -> None:
    """Open the null device for each stream that the caller has closed (`>&-`).

    Otherwise the next file to be opened, such as a manifest, would get the number of the stream, and a child process
    would print into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (open until the process exits)


def _flush(*, failed: bool) -> int:
    """Write what is still buffered. What cannot be written is dropped: the interpreter would try again when it exits.

    Args:
        failed: an error was shown already, and an output that cannot be written is not a second one.

    Raises:
        OSError: stdout cannot be written.
    """
    try:
        sys.stderr.flush()
    except OSError:  # narration that cannot be written is not an error
        console.drop_output(sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        console.drop_output()
        if not failed:
            raise
    return 0
