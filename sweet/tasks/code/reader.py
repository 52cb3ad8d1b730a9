"""Read the texts of models, and of tasks, in another process (sweet.tasks.code.reading), which is limited.

Parsing and compiling a text can take any time and memory, and can end the process that does it: a few hundred
characters suffice. This process therefore does neither. It sends the text to one process, started when it is first
needed, which has 2 s of processor time for each text and 512 MiB of memory. A text that takes more, or ends the
process twice, is `Unreadable`; the next one gets a new process. All threads share the process.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sweet.errors import SweetError
from sweet.sandbox.jail import Jail, JailError
from sweet.sandbox.program import Limits, Tier
from sweet.tasks.base import Task
from sweet.tasks.code.extract import LONGEST
from sweet.tasks.code.reading import CPU_SECONDS, HEADER, MEMORY_BYTES, MOST_REPLIED

LONGEST_TEXT = 1_000_000
"""Maximum characters of the texts in one request."""
_WAIT_SECONDS = 60.0
"""A process that is silent for so long, thirty times its processor time, has been stopped."""
_ROOT = Path(__file__).parents[3]
_SERVICE = "from sweet.tasks.code.reading import prepare, serve; prepare()"
_TIERS: tuple[Tier, ...] = ("bwrap", "landlock", "unsafe")
"""The strongest first."""


Reply = tuple[Any, list[bytes | None]]
"""A value, and pieces of code."""


class Unreadable(Exception):
    """The text takes more time or memory than it may, or ends the process that reads it; says which.

    Attributes:
        outcome: the outcome of an answer with this text.
    """

    def __init__(self, why: str, outcome: Literal["timeout", "crash"] = "crash") -> None:
        super().__init__(why)
        self.outcome = outcome


class _Lost(Exception):
    """The process has ended with this status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True)
class AnswerCode:
    """The code in an answer: its source, None if there is none, and the same compiled."""

    source: str | None
    code: bytes | None


@dataclass(frozen=True)
class TaskCode:
    """What is read from a task.

    Attributes:
        names: the names defined by the reference that the tests use.
        raising: the lines of the reference's `raise` statements.
        source: the compiled reference; None if the child has to compile it.
        calls: each compiled call; None if the child has to compile it.
        fault: why the task cannot be read, if so; the rest is then empty.
    """

    names: frozenset[str]
    raising: frozenset[int]
    source: bytes | None
    calls: tuple[bytes | None, ...]
    fault: str | None = None


@dataclass(frozen=True)
class Statement:
    """A statement of a source.

    Attributes:
        tree: the hash of its syntax tree.
        line: its text, if it is on one line.
    """

    tree: str
    line: str | None


def read_answer(answer: str, names: frozenset[str] | None) -> AnswerCode:
    """Return the code in an answer that defines one of the names; without names, the code that the published evaluator
    runs (sweet.tasks.code.extract).

    Raises:
        Unreadable: the answer exceeds a limit.
    """
    asked: list[Any] = [answer] if names is None else [answer[:LONGEST], sorted(names)]
    source, [code] = _reader.ask("read_answer", *asked)
    return AnswerCode(source, code)


def read_task(task: Task) -> TaskCode:
    """Return what is read from a task's reference and calls."""
    return _read_task(task.ground_truth, tuple(task.test_cases.values()))


@functools.lru_cache(maxsize=4096)
def _read_task(reference: str, calls: tuple[str, ...]) -> TaskCode:
    try:
        value, (source, *codes) = _reader.ask("read_task", reference, list(calls))
    except Unreadable as error:
        return TaskCode(frozenset(), frozenset(), None, (None,) * len(calls), str(error))
    return TaskCode(frozenset(value["names"]), frozenset(value["raising"]), source, tuple(codes))


@dataclass(frozen=True)
class TextFaults:
    """What the texts of a task show.

    Attributes:
        source: why the reference does not compile; None if it does. calls: the same for each call.
        uses: the names of the reference that the calls use, None if it could not be parsed.
        imports: those of them that the reference imports.
        swapped: whether the names of the tests use some of its names.
    """

    source: str | None = None
    calls: Sequence[str | None] = ()
    uses: Sequence[str] | None = None
    imports: Sequence[str] = ()
    swapped: bool = False


def read_faults(task: Task) -> TextFaults:
    """Return what the texts of a task show, without running any."""
    calls, names = list(task.test_cases.values()), list(task.test_cases)
    try:
        return TextFaults(**_reader.ask("read_faults", task.ground_truth, calls, names)[0])
    except Unreadable as unreadable:
        return TextFaults(str(unreadable))


@functools.lru_cache(maxsize=4096)
def statements(source: str) -> tuple[Statement, ...]:
    """Return the statements of a source in their order, with those of functions; none if it cannot be parsed."""
    return _statements("read_statements", source)


def statements_of_answer(answer: str, names: frozenset[str]) -> tuple[Statement, ...]:
    """Return the statements of the code in an answer; none if there is no code."""
    return _statements("read_answer_statements", answer[:LONGEST], sorted(names))


def mutants_of(source: str) -> list[tuple[str, str]]:
    """Return mutants of a source: of each what was changed, and its source.

    Raises:
        Unreadable: the source exceeds a limit, or does not parse.
    """
    return [(what, text) for what, text in _reader.ask("read_mutants", source)[0]]


def _statements(*request: Any) -> tuple[Statement, ...]:
    try:
        return tuple(Statement(tree, line) for tree, line in _reader.ask(*request)[0])
    except Unreadable:
        return ()


class _Process:
    """One process that reads, until it has `finished` or an exception was raised."""

    def __init__(self, boot: str | None, folders: Sequence[str]) -> None:
        self.finished = False
        self.jail: Jail | None = None
        if boot is None:
            self.jail = _jail()
            self._socket = self.jail.socket
            self._socket.settimeout(_WAIT_SECONDS)
            return
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_WAIT_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", boot, str(_ROOT), *folders],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        if self._socket.recv(1) != b"+":
            raise OSError("it ended at once")

    def send(self, request: bytes) -> None:
        """Send a request.

        Raises:
            _Lost: the process has ended.
            TimeoutError: the process does not take them.
        """
        try:
            self._socket.sendall(request)
        except ConnectionError:
            raise _Lost(self._status()) from None

    def reply(self) -> Reply | Unreadable:
        """Return the value and the code of the next reply, or why the process cannot read the text.

        Raises:
            _Lost: the process has ended.
            TimeoutError: the process does not answer.
        """
        try:
            size, self.finished = HEADER.unpack(self._receive(HEADER.size))
            if size > MOST_REPLIED:
                raise ConnectionError
            text, _, code = self._receive(size).partition(b"\n")
        except ConnectionError:
            raise _Lost(self._status()) from None
        reply = json.loads(text)
        if "fault" in reply:
            return Unreadable(str(reply["fault"]))
        pieces: list[bytes | None] = []
        for length in reply["sizes"]:
            pieces.append(None if length is None else code[:length])
            code = code[length or 0 :]
        return reply["value"], pieces

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError
            data += more
        return bytes(data)

    def _status(self) -> int:
        """Return the exit status of a process that has closed its socket."""
        try:
            return self.jail.ending(_WAIT_SECONDS) if self.jail else int(self._process.wait(_WAIT_SECONDS))
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error

    def kill(self) -> None:
        if self.jail:
            self.jail.kill()
            return
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Leave the process to the one that this process was forked from."""
        if self.jail:
            self.jail.forget()
            return
        self._socket.close()
        self._process.returncode = 0


def _jail() -> Jail:
    """Start the process that reads answers in the strongest jail that can be started here.

    Raises:
        JailError: it cannot be started even without one.
    """
    for tier in _TIERS[:-1]:
        with suppress(JailError):
            return _in_jail(tier)
    return _in_jail(_TIERS[-1])


def _in_jail(tier: Tier) -> Jail:
    return Jail(tier, Limits(memory_bytes=MEMORY_BYTES), service=_SERVICE)


class Reader:
    """A process with limits, replaced whenever it ends.

    Args:
        boot: the program that it runs, instead of the one that reads answers; it calls `sweet.tasks.code.reading.main`.
            Its arguments are the folder of this package and `folders`.
        cpu_seconds: processor time that the program has for each request.
        longest: characters of the texts in one request.
    """

    def __init__(
        self,
        boot: str | None = None,
        folders: Sequence[str] = (),
        cpu_seconds: float = CPU_SECONDS,
        longest: int = LONGEST_TEXT,
    ) -> None:
        self._boot, self._folders, self._cpu_seconds, self._longest = boot, folders, cpu_seconds, longest
        self._lock = threading.Lock()
        self._process: _Process | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    def ask(self, *request: Any) -> Reply:
        """Return the reply to a request: a value, and pieces of code.

        Raises:
            Unreadable: the text exceeds a limit.
            SweetError: processes cannot be started on this machine, or do not answer.
        """
        data = json.dumps(request).encode("ascii")
        if len(data) > self._longest and sum(map(len, _texts(request))) > self._longest:
            raise Unreadable(f"it is longer than {self._longest} characters")
        with self._lock:
            return self._ask(HEADER.pack(len(data), False) + data)

    def _ask(self, request: bytes) -> Reply:
        for last in (False, True):
            process = self._process = self._process or self._started()
            in_step = False
            try:
                process.send(request)
                reply = process.reply()
                in_step = not process.finished
                if isinstance(reply, Unreadable):
                    raise reply
                return reply
            except _Lost as lost:
                if lost.status == -signal.SIGPROF:
                    why = f"reading it takes more than {self._cpu_seconds:g} s of processor time"
                    raise Unreadable(why, "timeout") from None
                if last:  # once, the machine may have ended it
                    raise Unreadable(f"it ends the process that reads it, {_ending(lost.status)}") from None
            except TimeoutError:
                if last:
                    raise SweetError(f"The process that reads texts was silent for {_WAIT_SECONDS:g} s.") from None
            finally:
                if not in_step:  # it has grown or ended, or an error leaves its replies out of step
                    self._close()
        raise AssertionError

    def _started(self) -> _Process:
        try:
            return _Process(self._boot, self._folders)
        except (OSError, JailError) as error:
            raise SweetError(f"The process that reads texts cannot be started: {error}.") from error

    def close(self) -> None:
        """End the process; it is started again when it is needed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _forked(self) -> None:
        self._lock = threading.Lock()
        if self._process is not None:
            self._process.forget()
            self._process = None


def _ending(status: int) -> str:
    return f"by {signal.strsignal(-status)}" if status < 0 else f"with status {status}"


def _texts(request: Any) -> list[str]:
    return [part for item in request for part in (item if isinstance(item, list) else [item])]


_reader = Reader()
