"""Errors of a training on several ranks: each rank or node that fails writes its error to the job's folder.

The command and the launchers of other nodes read them and report the decisive one: the first `SweetError`, otherwise
the first error (later ones are usually its consequences). A node that does not see the folder prints its error to the
launcher's log.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from sweet.errors import SweetError, UsageError, described
from sweet.files import write_whole
from sweet.full_disk import full_disk
from sweet.hints import Hint, hint_from_json, hint_to_json, option
from sweet.llm.vllm import last_lines

LOG_PREFIX = "sweet-node-error "
"""Prefix of an error in the log."""


def error_path(folder: Path, who: int | str) -> Path:
    """The file for the error of a rank (its number) or of a node (`node-1`)."""
    return folder / f"error-{who}.json"


def error_paths(folder: Path) -> list[Path]:
    """All error files in the folder."""
    return sorted(folder.glob(error_path(folder, "*").name))


def write_error(folder: Path, who: int | str, error: BaseException) -> None:
    """Write the error for the command and the other nodes, unless the folder has been removed after the training
    ended."""
    if folder.is_dir():
        write_whole(error_path(folder, who), json.dumps(error_fields(error)).encode())


def error_fields(error: BaseException) -> dict[str, Any]:
    """The error as JSON types."""
    error = full_disk(error) or error
    if isinstance(error, SweetError):
        fields = {
            "what": hint_to_json(error.what),
            "where": hint_to_json(error.where),
            "fix": hint_to_json(error.fix),
        }
    else:
        fields = {"what": described(error)}
    known, is_usage = isinstance(error, SweetError), isinstance(error, UsageError)
    return fields | {"known": known, "usage": is_usage, "time": time.time()}


def has_known_error(folder: Path) -> bool:
    """Whether one of the errors is a `SweetError`."""
    return any(fields["known"] for fields, _ in _errors_in_folder(folder))


def error_of(folder: Path, log: Path, status: int) -> SweetError:
    """The decisive error of ranks whose launcher ended with `status`; without one, the last lines of `log`."""
    found = sorted(
        [*_errors_in_folder(folder), *_errors_in_log(log)], key=lambda item: (not item[0]["known"], item[0]["time"])
    )
    if found:
        fields, who = found[0]
        if fields["known"]:
            error_class = UsageError if fields["usage"] else SweetError
            what, where, fix = (hint_from_json(fields.get(name)) for name in ("what", "where", "fix"))
            return error_class(what or "", where=where or who, fix=fix)
        fix = Hint("see the log; then ", option("resume", True))
        return SweetError(f"{who.capitalize()} failed: {fields['what']}", where=log, fix=fix)
    lines = last_lines(log)
    return SweetError(
        "\n".join(
            [f"The ranks ended with status {status} without reporting an error. The last lines of their log:", *lines]
        ),
        where=log,
        fix=Hint(option("resume", True), " continues from the last checkpoint"),
    )


def _errors_in_folder(folder: Path) -> list[tuple[dict[str, Any], str]]:
    """The errors in the folder, each with the name of the rank or node."""
    found = []
    for path in error_paths(folder):
        who = path.stem.removeprefix("error-")
        found.append(
            (json.loads(path.read_text(encoding="utf-8")), who.replace("-", " ") if "-" in who else f"rank {who}")
        )
    return found


def _errors_in_log(log: Path) -> list[tuple[dict[str, Any], str]]:
    """The errors in the log, each with the name of the node."""
    if not log.exists():
        return []
    lines = re.findall(rf"{LOG_PREFIX}(\{{.*\}})$", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return [(json.loads(line), "a node") for line in lines]
