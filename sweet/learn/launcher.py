"""Starts the ranks of one machine: `python -m sweet.learn.launcher OPTIONS -m PROGRAM FOLDER`, with the options of
torchrun (`torch.distributed.run`).

torchrun starts the ranks, ends them all when one has failed, and ends them when this process gets SIGTERM, SIGINT or
SIGHUP. What it knows of a rank that could not report its own error, because a signal killed it, is written to the
job's folder.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweet import collector
from sweet.errors import SweetError
from sweet.learn.failure import write_error

ENDED_BY_LAUNCHER = signal.SIGTERM
"""The signal that torchrun sends to the other ranks."""


def main(arguments: Sequence[str]) -> int:
    """Run the ranks of this machine; return the exit status."""
    folder = Path(arguments[-1])
    if not folder.is_dir():
        sys.stderr.write(f"{socket.gethostname()} does not see the run: the disk is not shared. {folder}\n")
        return 1
    with collector.paused():
        import torch.distributed.run
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    torchrun: Any = torch.distributed.run
    try:
        torchrun.run(torchrun.parse_args(list(arguments)))
    except ChildFailedError as error:
        for rank, failure in error.failures.items():
            number = -failure.exitcode
            if number > 0 and number != ENDED_BY_LAUNCHER:
                write_error(folder, rank, _killed(signal.Signals(number)))
        return 1
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _killed(number: signal.Signals) -> SweetError:
    fix = "--resume continues from the last checkpoint"
    if number == signal.SIGKILL:
        fix = f"if the machine's memory was full: fewer --devices, or --zero 3; {fix}"
    return SweetError(f"A process of the training was killed by {number.name}.", fix=fix)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    collector.before_exit()
    sys.exit(status)
