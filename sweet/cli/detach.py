"""`--detach`: the work goes on without the terminal, in a process that leads a session of its own.

The command starts itself again, without the option: stdin is empty, narration goes to `logs/detached-N.log` of the run,
and the result, or the error as an object, to `logs/detached-N.json`. It returns when the process has begun its attempt.
A process that ends before that has found an error in the options, the inputs or the machine: the error is raised here,
with its exit code.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sweet.errors import InputError, SweetError
from sweet.regular import make_folder, open_descriptor, read_regular
from sweet.runs.manifest import LOGS, Attempt, next_id, now
from sweet.runs.process import host
from sweet.runs.run import Run

NAME = "detached"
POLL_SECONDS = 0.1
LARGEST = 1 << 26
"""Most bytes of a result that is read."""


@dataclass(frozen=True)
class Detached:
    """Work that goes on.

    Attributes:
        attempt: the id of its first attempt.
        log: where its narration goes, and `result` what it prints.
    """

    run: Path
    attempt: str
    pid: int
    log: Path
    result: Path

    @property
    def follow(self) -> str:
        return shlex.join(["sweet", "status", str(self.run), "--follow"])

    @property
    def stop(self) -> str:
        return shlex.join(["sweet", "control", str(self.run), "stop"])

    def as_json(self, stage: str) -> dict[str, Any]:
        files = {"log": str(self.log), "result": str(self.result)}
        shown = {"stage": stage, "run": str(self.run), "attempt": self.attempt, "pid": self.pid}
        return {**shown, **files, "follow": self.follow, "metrics": {}, "artifacts": []}


def detach(words: Sequence[str], run: Run, environment: Mapping[str, str]) -> Detached:
    """Start `sweet WORDS`, which have `--json`, and return when it has begun its work in the run.

    Raises:
        SweetError: it ended before; the error and the exit code are its own.
    """
    result, log = _new_files(run.path.absolute())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # it would be inherited, and `sweet control RUN stop` ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
    began = now()
    with os.fdopen(_created(result), "wb") as out, os.fdopen(_created(log), "wb") as err:
        # -P: a file of the current folder must not be imported instead of a module
        command = [sys.executable, "-P", "-m", "sweet", *words]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
    try:
        while True:
            ended = process.poll() is not None
            attempt = _begun(run, process.pid, began)
            if attempt is not None:
                folder = run.path / LOGS
                return Detached(run.path, attempt.id, process.pid, folder / log.name, folder / result.name)
            if ended:
                raise _error(process.returncode, result, log)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def _new_files(root: Path) -> tuple[Path, Path]:
    folder = root / LOGS
    make_folder(folder)
    name = next_id(NAME, [entry.name.partition(".")[0] for entry in folder.iterdir()])
    return folder / f"{name}.json", folder / f"{name}.log"


def _created(path: Path) -> int:
    return open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)


def _begun(run: Run, pid: int, since: datetime) -> Attempt | None:
    """Return the first attempt of the process; it may have ended already."""
    return next(iter(run.manifest().begun_by(pid, host(), since)), None)


def _error(code: int, result: Path, log: Path) -> SweetError:
    """Return the error of a process that ended before its work began, and remove its empty files."""
    found: dict[str, Any] = {}
    with suppress(OSError, InputError, ValueError):
        content = json.loads(read_regular(result, LARGEST))
        found = content if isinstance(content, dict) else {}
    if not found.get("error"):
        error = SweetError(f"The work ended before it began (exit code {code}).", where=log)
    else:
        error = SweetError(str(found["error"]), where=found.get("where"), fix=found.get("fix"))
        for path in (result, log):
            path.unlink(missing_ok=True)
    error.title = "The work did not begin"
    error.exit_code = code if 0 < code < 256 else SweetError.exit_code
    return error
