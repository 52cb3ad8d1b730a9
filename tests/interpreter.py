"""Stands in for the Python interpreter: what a zygote can run is forked by it, all else runs in a new interpreter.

`FOLDER/python ARGUMENTS`, a script in the folder of the zygotes that calls `main`, does what `python ARGUMENTS` does.
What is forked has that script as its `sys.executable`, so that the programs it starts are forked too. This process is
the one that its parent knows: it passes on its streams and signals, and ends as the forked one ends. If it is
killed, the zygote kills the forked one. What that one asks for when its parent ends (`PR_SET_PDEATHSIG`) concerns the
zygote, so this process asks for it in place of a rank; tests about killed ranks start new interpreters all the same.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

from tests import programs

PACKAGES = {"sweet", "tests", "benchmarks"}
"""Whose modules are forked."""
RAY_PROGRAMS = (
    "/ray/_private/workers/default_worker.py",
    "/ray/_private/runtime_env/agent/main.py",
    "/ray/dashboard/agent.py",
)
"""How the paths end of the programs that Ray starts on each node. They read its variables after the fork."""
KERNEL = "ipykernel_launcher"
"""The program that runs the cells of a notebook."""
READ_BY_KERNELS = ("JPY_", "PYDEVD_", "RUN")
"""Variables of that program, and the one of the notebook in `examples`."""
READ_BY_SCREENS = ("TEXTUAL_", "ROWS")
"""Variables of a screen in a browser. Textual reads them when it is imported, and no zygote has imported it."""
SET_BY_READLINE = ("COLUMNS", "LINES")
"""Which pytest's first process imports: in its workers messages would wrap, as on a terminal."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RANKS = ("sweet.learn.worker", "sweet.online.rank")
"""What does not outlive its launcher; a rank of an online training would wait for calls until the zygote ends."""
RANKS_OF_TESTS = ("tests.learn.zero_ranks", "tests.online.learner_ranks")
_PR_SET_PDEATHSIG = 1


def forked(name: str, arguments: Sequence[str]) -> programs.Forked | None:
    """Let a zygote run these arguments; None if it cannot."""
    how = arguments[0] if arguments[:1] in (["-u"], ["-P"]) else ""
    words = arguments[1:] if how else arguments
    read_later: tuple[str, ...]
    match words:
        case ["-c", *_] if how == "-u":  # pytest-xdist's
            level = os.environ.get(programs.WORKERS, "tests")
            environment = {name: value for name, value in os.environ.items() if name not in SET_BY_READLINE}
            return programs.Forked(programs.zygote(level), words, environment, ends_with_client=True)
        case ["-m", module, *_] if module.partition(".")[0] in PACKAGES:
            read_later = READ_BY_SCREENS
        case ["-m", module, *_] if module == KERNEL:
            read_later = READ_BY_KERNELS
        case ["-c", *_]:
            read_later = ()
        case [file, *_] if file.endswith(RAY_PROGRAMS):
            read_later = programs.READ_BY_RAY
        case _:
            return None
    if not programs.is_applied(os.environ, read_later):
        return None
    is_small = tuple(words[:2]) == programs.SWEET and not programs.needs_torch(words)
    is_rank = words[0] == "-m" and words[1] in (*RANKS, *RANKS_OF_TESTS)
    return programs.Forked(
        programs.zygote("commands" if is_small else "ranks" if is_rank else "torch"),
        words,
        dict(os.environ),
        name,
        unbuffered=how == "-u",
        safe_path=how == "-P",
        ends_with_client=True,
    )


def end_like(process: programs.Forked) -> None:
    """Wait for a process, and end with its status."""
    for stream in (0, 1):
        os.close(stream)  # or the other end would not see when the process closes it
    status = process.wait()
    if -status in (*PASSED_ON, signal.SIGKILL):
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def main() -> None:
    """Do what the interpreter does with the arguments of this process."""
    own, *arguments = sys.argv
    if sys.platform == "linux" and set(RANKS) & set(arguments[:3]):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    received: list[int] = []
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: received.append(number))
    process = forked(own, arguments)
    if process is None:
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        for early in received:
            os.kill(os.getpid(), early)
        os.execv(sys.executable, [sys.executable, *arguments])
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: process.send_signal(number))  # if it has not ended
    for early in received:
        process.send_signal(early)
    end_like(process)
