"""`sweet control`: asks a running stage from another process to pause, to go on, or to change what it does.

A request goes into a file of the attempt (`sweet.runs.control`), and the stage answers in the file of its progress.
`stop` is a signal instead, the one of Ctrl-C, which every stage and library knows. It is sent only to the process that
the manifest records, on its own machine. A process that ignores it, as a background job of a shell does, gets SIGTERM.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path

from pydantic import Field

from sweet.errors import UsageError
from sweet.runs.attempt import control_path, progress_path
from sweet.runs.control import ACTIONS, LONGEST_VALUE, Action, request
from sweet.runs.manifest import Attempt
from sweet.runs.process import host, process_mark
from sweet.runs.progress import read_progress
from sweet.runs.run import Run
from sweet.runs.store import Store
from sweet.stages.base import OPERATIONAL, StageConfig
from sweet.stages.record import Record
from sweet.suggestions import did_you_mean

STOP = "stop"
COMMANDS = (*ACTIONS, STOP)
POLL_SECONDS = 0.05

_CANNOT = {
    "pause": "{} cannot be paused: only rollout, rank, eval and a training in the process of the command can.",
    "resume": "{} cannot be paused, so it need not be resumed.",
    "concurrency": "{} plays no dialogues, so their number at once cannot be changed.",
}


class ControlConfig(StageConfig):
    attempt: str | None = None
    """The attempt that is asked, such as rollout-2; default: the newest running one that can do it."""
    wait: float = Field(default=10.0, ge=0, json_schema_extra=OPERATIONAL)
    """Seconds to wait for the answer. A training looks once a step."""


class ControlMetrics(Record):
    attempt: str
    """the attempt that was asked"""
    answer: str | None
    """what it has done; null if it has not answered yet"""
    seconds: float
    """until it answered"""


def control(run: Run, command: str, value: str | None, config: ControlConfig) -> ControlMetrics:
    """Ask a running attempt, and wait for its answer.

    Args:
        command: one of `COMMANDS`.
        value: of `concurrency` the number.

    Raises:
        UsageError: nothing runs that can do it, or it refuses.
    """
    action = _checked(command, value)
    attempt = _choose(run, action, config.attempt)
    began = time.monotonic()
    if action is None:
        _stop(attempt)
        answer: str | None = f"{attempt.id} is asked to stop, as by Ctrl-C."
    else:
        answer = _ask(run, attempt, action, value or "", config.wait)
    return ControlMetrics(attempt=attempt.id, answer=answer, seconds=round(time.monotonic() - began, 3))


def _checked(command: str, value: str | None) -> Action | None:
    """Return the action to ask for; None to stop.

    Raises:
        UsageError: there is no such command, or its value is missing or wrong.
    """
    action = next((one for one in ACTIONS if one == command), None)
    if action is None and command != STOP:
        what = f"{command} cannot be asked of a stage.{did_you_mean(command, COMMANDS)}"
        raise UsageError(what, where=command, fix=", ".join(COMMANDS))
    if command != "concurrency" and value is not None:
        raise UsageError(f"{command} has no value.", where=value, fix="leave it out")
    if command == "concurrency" and (not value or len(value) > LONGEST_VALUE or not value.isprintable()):
        needed = "the number of dialogues at once"
        what = f"This is no value of {command}." if value else f"{command} needs {needed}."
        raise UsageError(what, where=(value or command)[:LONGEST_VALUE], fix=f"give {needed}")
    return action


def _choose(run: Run, action: Action | None, named: str | None) -> Attempt:
    """Return the attempt to ask.

    Raises:
        UsageError: none runs, or none that runs can do it.
    """
    running = [attempt for attempt in run.manifest().attempts if attempt.status == "running"]
    if named is not None:
        running = [attempt for attempt in running if attempt.id == named]
    if not running:
        what = "Nothing runs in this run." if named is None else f"{named} does not run."
        raise UsageError(what, where=run.path, fix=shlex.join(["sweet", "status", str(run.path)]))
    able = running if action is None else [attempt for attempt in running if action in _accepted(run, attempt)]
    if not able:
        names = ", ".join(attempt.id for attempt in running)
        stop = shlex.join(["sweet", "control", str(run.path), STOP])
        what = _CANNOT[str(action)].format(names)
        raise UsageError(what, where=run.path, fix=f"{stop} ends it; finished work is kept")
    return able[-1]


def _accepted(run: Run, attempt: Attempt) -> list[str]:
    progress = read_progress(progress_path(run.path.absolute(), attempt.id))
    return [] if progress is None else progress.accepts


def _ask(run: Run, attempt: Attempt, action: Action, value: str, wait: float) -> str | None:
    root = run.path.absolute()
    shown = progress_path(root, attempt.id)
    before = read_progress(shown)
    after = max((answer.number for answer in before.answers), default=0) if before is not None else 0
    number = request(Store(root), control_path(root, attempt.id), action, value, after=after)
    ends = time.monotonic() + wait
    while True:
        progress = read_progress(shown)
        answers = [] if progress is None else progress.answers
        if answer := next((one for one in answers if one.number == number), None):
            if answer.refused:
                raise UsageError(answer.text, where=attempt.id)
            return answer.text
        if time.monotonic() >= ends:
            return None
        now = run.manifest().attempt(attempt.id)
        if now is None or now.status != "running":
            raise UsageError(f"{attempt.id} has ended in the meantime.", where=run.path)
        time.sleep(POLL_SECONDS)


def _stop(attempt: Attempt) -> None:
    if attempt.host != host():
        what = f"{attempt.id} runs on {attempt.host}, and only a process there can stop it."
        raise UsageError(what, where=attempt.id, fix=f"the same command on {attempt.host}")
    mark = process_mark(attempt.pid)
    if mark != attempt.process or (not mark and process_mark(os.getpid())):
        what = f"Process {attempt.pid} of {attempt.id} is in another container, or has ended."
        raise UsageError(what, where=attempt.id, fix="the same command where it runs")
    number = signal.SIGTERM if _ignores_interrupts(attempt.pid) else signal.SIGINT
    try:
        os.kill(attempt.pid, number)
    except (ProcessLookupError, PermissionError) as error:
        what = f"Process {attempt.pid} cannot be stopped: {error.strerror}."
        raise UsageError(what, where=attempt.id, fix="stop it as the user who started it") from error


def _ignores_interrupts(pid: int) -> bool:
    """Return whether a process ignores Ctrl-C, as Linux shows it; False where that cannot be known."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    ignored = next((line.split()[1] for line in lines if line.startswith("SigIgn:")), "0")
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)
