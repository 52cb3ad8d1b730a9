"""A server that `sweet train` starts: `sweet serve-sim` in a process of its own.

    sweet train ── supervisor ── sweet serve-sim (── supervisor ── vllm and its workers)

The first supervisor ends `sweet serve-sim` if `sweet train` is gone, however it was ended (`sweet.supervisor`). What
the server prints goes to a log file, except for its address, which it prints as soon as it answers.

The servers of a run hold a lock, which the system releases when the last of them has ended: a `sweet train` that was
killed and is started again waits until the GPUs are free.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet import supervisor
from sweet.errors import SweetError, UsageError
from sweet.llm.vllm import LAST_LINES, is_healthy, last_lines
from sweet.regular import make_folder, open_descriptor

STOP_TIMEOUT = 30.0
"""Seconds that a server has to end: longer than it gives to its vllm."""
LOCK_TIMEOUT = STOP_TIMEOUT + 15
"""Seconds to wait for the servers of an earlier `sweet train`."""
POLL_INTERVAL = 0.05
READ_LOG = "read the log; the same command continues"
OPTIONS_PREFIX = "SWEET_SERVE_SIM_"
"""Variables that set options of `sweet serve-sim`: they are for a server that the user starts."""


@dataclass(frozen=True)
class Command:
    """What is started: two servers with the same one are the same.

    Attributes:
        words: options of `sweet serve-sim`.
        variables: environment variables that differ from those of this process.
    """

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


class ServerProcess:
    """A server that was started; `stop` must be called.

    Attributes:
        name: for messages.
        url: its address; None until it answers.
    """

    def __init__(self, name: str, command: Command, log: Path, environment: Mapping[str, str], lock: int) -> None:
        self.name, self.command, self.log = name, command, log
        self.url: str | None = None
        self.started = time.monotonic()
        self._printed = b""
        own = {key: value for key, value in environment.items() if not key.startswith(OPTIONS_PREFIX)}
        words = [sys.executable, "-P", "-m", "sweet", "serve-sim", "--json", *command.words]
        make_folder(log.parent)
        with os.fdopen(open_descriptor(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as output:
            self._log_start = output.tell()
            self.process = subprocess.Popen(
                supervisor.supervised(words, STOP_TIMEOUT),
                env=own | dict(command.variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                pass_fds=[lock],  # the supervisor holds it, too
            )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started

    def answers(self) -> bool:
        """Whether it has printed its address.

        Raises:
            SweetError: it has ended; a UsageError if it was not started as it can be.
        """
        if self.url is None:
            ended = self.process.poll() is not None
            printed = self._read()
            if "error" in printed:
                kind = UsageError if printed["exit_code"] == UsageError.exit_code else SweetError
                what = f"The server of {self.name} did not start: {printed['error']}"
                fix = printed["fix"] if kind is UsageError else READ_LOG
                raise kind(what, where=printed["where"] or self.log, fix=fix)
            if printed:
                self.url = str(printed["metrics"]["url"])
            elif ended:
                raise self.failure(SweetError, f"ended with status {self.process.returncode}")
        return self.url is not None

    def _read(self) -> dict[str, Any]:
        """Return the object that it has printed, with its address or its error; empty as long as there is none."""
        assert self.process.stdout is not None
        with suppress(BlockingIOError):
            self._printed += os.read(self.process.stdout.fileno(), 1 << 16)
        try:
            printed = json.loads(self._printed)
        except ValueError:  # it is not complete
            return {}
        return printed if isinstance(printed, dict) else {}

    def is_well(self) -> bool:
        """Whether it runs and answers."""
        return self.process.poll() is None and self.url is not None and is_healthy(self.url)

    def failure(self, kind: type[SweetError], what: str) -> SweetError:
        """Return an error, "The server of … `what`", with the last lines of the log."""
        output = "\n".join(self.last_lines())
        return kind(
            f"The server of {self.name} {what}." + (f" Its last lines:\n{output}" if output else ""),
            where=self.log,
            fix=READ_LOG,
        )

    def last_lines(self, count: int = LAST_LINES) -> Sequence[str]:
        """Return the last lines that it has written to its log."""
        return last_lines(self.log, count, self._log_start)

    def terminate(self) -> None:
        """Let it end, without waiting."""
        with suppress(ProcessLookupError):
            self.process.terminate()

    def stop(self) -> None:
        """End it and everything that it started."""
        try:
            self.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(2 * supervisor.KILL_TIMEOUT)
        finally:  # a second Ctrl-C must not leave processes behind
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


@contextmanager
def server_lock(path: Path) -> Iterator[int]:
    """Hold the lock of a run's servers, and yield its descriptor, which the servers inherit.

    Raises:
        UsageError: servers of another `sweet train` of this run do not end.
    """
    import fcntl

    descriptor = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        ends = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise UsageError(
                        f"Servers of another sweet train have not ended within {LOCK_TIMEOUT:.0f} seconds.",
                        where=path,
                        fix="wait for that sweet train, or end it",
                    ) from None
                time.sleep(POLL_INTERVAL)
        yield descriptor
    finally:
        os.close(descriptor)
