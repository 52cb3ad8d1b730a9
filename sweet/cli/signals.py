"""Ends the process: on signals, when the reader of stdout has exited, when the output cannot be written.

SIGTERM and SIGHUP are treated as Ctrl-C: finished work is kept and the exit code is 130. A second Ctrl-C also stops the
clean-up; one that arrives after the error was shown ends the process at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from sweet import collector
from sweet.cli import console
from sweet.cli.exits import exit_code_of
from sweet.errors import Interrupted

TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that are treated as Ctrl-C. Windows has no SIGHUP."""


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


def _interrupt(*_: object) -> None:
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
