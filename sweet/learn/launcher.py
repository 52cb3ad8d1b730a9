"""Starts the ranks of one machine: `python -m sweet.learn.launcher OPTIONS -m PROGRAM FOLDER`, with the options of
torchrun (`torch.distributed.run`).

torchrun starts the ranks, ends them all when one has failed, and ends them when this process gets SIGTERM, SIGINT or
SIGHUP.

Each rank that fails writes its error to the job's folder; of one that a signal killed, this process does. The command
reports the decisive one: the first `SweetError`, otherwise the first error. Later ones are usually its consequences,
such as connections that a rank that failed has closed.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweet import collector
from sweet.errors import SweetError, UsageError, described
from sweet.files import write_whole
from sweet.full_disk import full_disk
from sweet.llm.vllm import last_lines

ENDED_BY_LAUNCHER = signal.SIGTERM
"""The signal that torchrun sends to the other ranks."""
RESUME = "--resume continues from the last checkpoint"


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
        from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    # Each name for its log, which is off, is found in the source of all callers, which takes a second in all.
    vars(dynamic_rendezvous)["get_method_name"] = lambda *_, **__: ""
    torchrun: Any = torch.distributed.run
    try:
        torchrun.run(torchrun.parse_args(list(arguments)))
    except ChildFailedError as error:
        for rank, failure in error.failures.items():
            if (number := -failure.exitcode) > 0 and number != ENDED_BY_LAUNCHER:
                write_error(folder, rank, _killed(signal.Signals(number)))
        return 1
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _killed(number: signal.Signals) -> SweetError:
    fix = RESUME
    if number == signal.SIGKILL:
        fix = f"if the machine's memory was full: fewer --devices, or --zero 3; {RESUME}"
    return SweetError(f"A process of the training was killed by {number.name}.", fix=fix)


# Errors of ranks ---------------------------------------------------------------------------------------------------


def error_path(folder: Path, rank: int | str) -> Path:
    """The file for the error of a rank."""
    return folder / f"error-{rank}.json"


def error_paths(folder: Path) -> list[Path]:
    """All error files in the folder."""
    return sorted(folder.glob(error_path(folder, "*").name))


def write_error(folder: Path, rank: int | str, error: BaseException) -> None:
    """Write the error of a rank of this machine, unless the folder has been removed after the training ended."""
    if folder.is_dir():
        fields = error_fields(error) | {"rank": int(rank), "host": socket.gethostname()}
        write_whole(error_path(folder, rank), json.dumps(fields).encode())


def error_fields(error: BaseException) -> dict[str, Any]:
    """The error as JSON types."""
    error = full_disk(error) or error
    fields = {"known": isinstance(error, SweetError), "usage": isinstance(error, UsageError), "time": time.time()}
    if isinstance(error, SweetError):
        return fields | {"what": error.what, "where": error.where, "fix": error.fix}
    return fields | {"what": described(error)}


def has_known_error(folder: Path) -> bool:
    """Whether one of the errors is a `SweetError`."""
    return any(fields["known"] for fields in _errors(folder))


def error_of(folder: Path, log: Path, status: int) -> SweetError:
    """The decisive error of ranks whose launcher ended with `status`; without one, the last lines of `log`."""
    if errors := _errors(folder):
        fields = min(errors, key=lambda fields: (not fields["known"], fields["time"]))
        rank_on_host = f"{fields['rank']} on {fields['host']}"
        if fields["known"]:
            error_class = UsageError if fields["usage"] else SweetError
            what, where, fix = (fields.get(name) for name in ("what", "where", "fix"))
            return error_class(what or "", where=where or f"rank {rank_on_host}", fix=fix)
        fix = "see the log; then --resume"
        return SweetError(f"Rank {rank_on_host} failed: {fields['what']}", where=log, fix=fix)
    what = f"The ranks ended with status {status} without reporting an error. The last lines of their log:"
    return SweetError("\n".join([what, *last_lines(log)]), where=log, fix=RESUME)


def _errors(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in error_paths(folder)]


if __name__ == "__main__":
    status = main(sys.argv[1:])
    collector.before_exit()
    sys.exit(status)
