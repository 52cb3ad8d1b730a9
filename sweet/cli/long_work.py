"""`--detach`: long work goes on without the terminal.

The command starts itself again, without the option, in a process that leads a session of its own: stdin is empty,
narration goes to `logs/detached-N.log` of the run, and the result, or the error as an object, to
`logs/detached-N.json`. It returns when the process has begun its attempt. A process that ends before that has found an
error in the options, the inputs or the machine: the error is raised here, with its exit code.
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
from pathlib import Path
from typing import Any

from sweet.errors import InputError, SweetError
from sweet.regular import make_folder, open_descriptor, read_regular
from sweet.runs.manifest import LOGS, next_id
from sweet.runs.process import host, process_mark
from sweet.runs.run import Run

NAME = "detached"
POLL_SECONDS = 0.1
LARGEST = 1 << 26
"""Most bytes of a result that is read."""


def detach(words: Sequence[str], run: Run, environment: Mapping[str, str]) -> dict[str, Any]:
    """Start `sweet WORDS`, which have `--json`, and return when it has begun its work in the run: the id of its first
    attempt, its process, the files of its narration and result, and the commands that follow and stop it.

    Raises:
        SweetError: it ended before; the error and the exit code are its own.
    """
    folder = run.path.absolute() / LOGS
    make_folder(folder)
    name = next_id(NAME, [entry.name.partition(".")[0] for entry in folder.iterdir()])
    result, log = folder / f"{name}.json", folder / f"{name}.log"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # it would be inherited
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with os.fdopen(_created(result), "wb") as out, os.fdopen(_created(log), "wb") as err:
        # -P: a file of the current folder must not be imported instead of a module
        command = [sys.executable, "-P", "-m", "sweet", *words]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
    mark = process_mark(process.pid)
    try:
        while True:
            ended = process.poll() is not None
            for attempt in run.manifest().begun_by(process.pid, host(), mark):  # the first; it may have ended already
                return {
                    "attempt": attempt.id,
                    "pid": process.pid,
                    "log": str(run.path / LOGS / log.name),
                    "result": str(run.path / LOGS / result.name),
                    "follow": shlex.join(["sweet", "status", str(run.path), "--follow"]),
                    "stop": f"kill -INT {process.pid}",
                }
            if ended:
                raise _error(process.returncode, result, log)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def _created(path: Path) -> int:
    return open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)


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
