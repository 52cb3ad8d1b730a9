"""How the process ends: signals, a reader that has left, an output that cannot be written.

SIGTERM is taken as Ctrl-C is: what was done is kept and the exit code is 130. A second Ctrl-C while that goes on stops
the rest too; one that comes when the error has been told ends the process at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from sweet.cli import console
from sweet.cli.ending import ended
from sweet.errors import Interrupted


def end_with(work: Callable[[], int]) -> NoReturn:
    """Do the work of the process and end it with the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # what is left then is the interpreter's own end
    try:
        code = ended(work)
        code = ended(_flush) or code
    except KeyboardInterrupt:  # the second one
        code = Interrupted.exit_code
    if code == Interrupted.exit_code:
        signal.signal(signal.SIGINT, lambda *_: os._exit(Interrupted.exit_code))
    sys.exit(code)


def _flush() -> int:
    try:
        sys.stdout.flush()
    except OSError:  # the interpreter would try again at its end, and say so
        console.drop_output()
        raise
    return 0
