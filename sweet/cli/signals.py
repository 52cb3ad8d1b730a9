"""How the process ends: signals, a reader that has left, an output that cannot be written.

SIGTERM and SIGHUP are taken as Ctrl-C is: what was done is kept and the exit code is 130. A second Ctrl-C while that
goes on stops the rest too; one that comes when the error has been told ends the process at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from sweet.cli import console
from sweet.cli.exits import ended
from sweet.errors import Interrupted

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Taken as Ctrl-C is. Windows has no SIGHUP."""


def end_with(work: Callable[[], int]) -> NoReturn:
    """Do the work of the process and end it with the exit code."""
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, _as_ctrl_c)
    atexit.register(_ignore_all)  # what is left then is the interpreter's own end
    try:
        code = ended(work)
        code = ended(lambda: _flush(failed=code != 0)) or code
    except KeyboardInterrupt:  # the second one
        code = Interrupted.exit_code
    if code == Interrupted.exit_code:
        signal.signal(signal.SIGINT, lambda *_: os._exit(Interrupted.exit_code))
    sys.exit(code)


def _as_ctrl_c(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs behind an &
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def _ignore_all() -> None:
    for number in (*ENDING, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _fill_closed_streams() -> None:
    """A stream that the caller has closed (`>&-`) leads nowhere. Left closed, the next file that is opened, a manifest
    say, would get its number, and what a child prints would stand in it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (as long as the process lives)


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
