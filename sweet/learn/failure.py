"""Errors of a training on several ranks: each rank that fails writes its error to the job's folder.

The command reports the decisive one: the first `SweetError`, otherwise the first error. Later ones are usually its
consequences, such as connections that a rank that failed has closed.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from sweet.errors import SweetError, UsageError, described
from sweet.files import write_whole
from sweet.full_disk import full_disk
from sweet.llm.vllm import last_lines


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
    if isinstance(error, SweetError):
        fields = {
            "what": error.what,
            "where": error.where,
            "fix": error.fix,
        }
    else:
        fields = {"what": described(error)}
    known, is_usage = isinstance(error, SweetError), isinstance(error, UsageError)
    return fields | {"known": known, "usage": is_usage, "time": time.time()}


def has_known_error(folder: Path) -> bool:
    """Whether one of the errors is a `SweetError`."""
    return any(fields["known"] for fields in _errors(folder))


def error_of(folder: Path, log: Path, status: int) -> SweetError:
    """The decisive error of ranks whose launcher ended with `status`; without one, the last lines of `log`."""
    if errors := _errors(folder):
        fields = min(errors, key=lambda fields: (not fields["known"], fields["time"]))
        place = f"{fields['rank']} on {fields['host']}"
        if fields["known"]:
            error_class = UsageError if fields["usage"] else SweetError
            what, where, fix = (fields.get(name) for name in ("what", "where", "fix"))
            return error_class(what or "", where=where or f"rank {place}", fix=fix)
        fix = "see the log; then --resume"
        return SweetError(f"Rank {place} failed: {fields['what']}", where=log, fix=fix)
    lines = last_lines(log)
    return SweetError(
        "\n".join(
            [f"The ranks ended with status {status} without reporting an error. The last lines of their log:", *lines]
        ),
        where=log,
        fix="--resume continues from the last checkpoint",
    )


def _errors(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in error_paths(folder)]
