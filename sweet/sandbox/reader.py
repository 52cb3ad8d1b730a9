"""Handles hostile texts in another process (`sweet.sandbox.reading`), which is limited.

Parsing a text, compiling it, rendering a template or searching can take any time and memory, and can end the process
that does it: a few hundred characters suffice. This process therefore does none of it. It sends the text to one
process, started when it is first needed, which has some seconds of processor time for each text and bounded memory. A
text that takes more, or ends the process twice, is `Unreadable`; the next one gets a new process. All threads share it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sweet.errors import SweetError
from sweet.sandbox.jail import Jail, JailError
from sweet.sandbox.program import Limits, Tier
from sweet.sandbox.reading import CPU_SECONDS, HEADER, MEMORY_BYTES, MOST_REPLIED, Reply

LONGEST_TEXT = 1_000_000
"""Maximum characters of the texts in one request."""
_WAIT_SECONDS = 60.0
"""A process that is silent for so long, several times its processor time, has been stopped."""
_TOGETHER = 1 << 16
"""Bytes of requests that are sent at once: they fit into the socket's buffer, where the process may not read them yet
because its replies wait to be received."""
_ROOT = Path(__file__).parents[2]
_TIERS: tuple[Tier, ...] = ("bwrap", "landlock", "unsafe")
"""The strongest first."""


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


class _Process:
    """One process that reads, until it has `finished` or an exception was raised."""

    def __init__(self, program: str, folders: Sequence[str], *, in_jail: bool) -> None:
        self.finished = False
        self._received = bytearray()
        self.jail: Jail | None = None
        if in_jail:
            self.jail = _jail(program)
            self._socket = self.jail.socket
            self._socket.settimeout(_WAIT_SECONDS)
            return
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_WAIT_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", program, str(_ROOT), *folders],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        if self._socket.recv(1) != b"+":
            raise OSError("it ended at once")

    def ask(self, requests: Sequence[bytes]) -> Iterator[Reply | Unreadable]:
        """Yield the value and the code of the reply to each request, or why the process cannot read the text.

        Raises:
            _Lost: the process has ended.
            TimeoutError: the process does not take the requests, or does not answer.
        """
        try:
            self._socket.sendall(b"".join(requests))
            for _ in requests:
                size, self.finished = HEADER.unpack(self._receive(HEADER.size))
                if size > MOST_REPLIED:
                    raise ConnectionError
                yield self._reply(self._receive(size))
        except ConnectionError:
            raise _Lost(self._status()) from None

    @staticmethod
    def _reply(data: bytes) -> Reply | Unreadable:
        text, _, code = data.partition(b"\n")
        reply = json.loads(text)
        if "fault" in reply:
            return Unreadable(str(reply["fault"]))
        pieces: list[bytes | None] = []
        for length in reply["sizes"]:
            pieces.append(None if length is None else code[:length])
            code = code[length or 0 :]
        return reply["value"], pieces

    def _receive(self, size: int) -> bytes:
        while len(self._received) < size:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError
            self._received += more
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

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


def _jail(service: str) -> Jail:
    """Start the process in the strongest jail that can be started here.

    Raises:
        JailError: it cannot be started even without one.
    """
    start = partial(Jail, limits=Limits(memory_bytes=MEMORY_BYTES), service=service)
    for tier in _TIERS[:-1]:
        with suppress(JailError):
            return start(tier)
    return start(_TIERS[-1])


def _first(requests: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the first request, and those after it that have so many bytes together."""
    for number, request in enumerate(requests):
        size -= len(request)
        if number and size < 0:
            return
        yield request


class Reader:
    """A process with limits, replaced whenever it ends.

    Args:
        program: what it runs. It calls `sweet.sandbox.reading.main`, and its arguments are the folder of this package
            and `folders`; in a jail it defines `serve` (`sweet.sandbox.jail.Jail`).
        in_jail: where the machine has one.
        cpu_seconds: processor time that the program has for each request.
        longest: characters of the texts in one request.
    """

    def __init__(
        self,
        program: str,
        folders: Sequence[str] = (),
        cpu_seconds: float = CPU_SECONDS,
        longest: int = LONGEST_TEXT,
        *,
        in_jail: bool = False,
    ) -> None:
        self._start = partial(_Process, program, folders, in_jail=in_jail)
        self._cpu_seconds, self._longest = cpu_seconds, longest
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
        [reply] = self.ask_all([request])
        if isinstance(reply, Unreadable):
            raise reply
        return reply

    def ask_all(self, requests: Iterable[Sequence[Any]]) -> list[Reply | Unreadable]:
        """Return the reply to each request, or why a text of it is unreadable. The process gets several at once.

        Raises:
            SweetError: processes cannot be started on this machine, or do not answer.
        """
        encoded = [self._encoded(request) for request in requests]
        with self._lock:
            replies = iter(self._ask([each for each in encoded if isinstance(each, bytes)]))
        return [next(replies) if isinstance(each, bytes) else each for each in encoded]

    def _encoded(self, request: Sequence[Any]) -> bytes | Unreadable:
        data = json.dumps(request).encode("ascii")
        texts = (part for item in request for part in (item if isinstance(item, list) else [item]))
        if len(data) > self._longest and sum(map(len, texts)) > self._longest:
            return Unreadable(f"it is longer than {self._longest} characters")
        return HEADER.pack(len(data), False) + data

    def _ask(self, requests: Sequence[bytes]) -> list[Reply | Unreadable]:
        replies: list[Reply | Unreadable] = []
        while len(replies) < len(requests):
            sent = list(_first(requests[len(replies) :], _TOGETHER))
            end = len(replies) + len(sent)
            if len(sent) > 1:
                with suppress(_Lost, TimeoutError):  # which one it was shows when each is sent alone
                    replies += self._replies(sent)
            replies += map(self._reply_alone, requests[len(replies) : end])
        return replies

    def _reply_alone(self, request: bytes) -> Reply | Unreadable:
        for last in (False, True):
            try:
                [reply] = self._replies([request])
                return reply
            except _Lost as lost:
                if lost.status == -signal.SIGPROF:
                    why = f"reading it takes more than {self._cpu_seconds:g} s of processor time"
                    return Unreadable(why, "timeout")
                if last:  # once, the machine may have ended it
                    ending = f"by {signal.strsignal(-code)}" if (code := lost.status) < 0 else f"with status {code}"
                    return Unreadable(f"it ends the process that reads it, {ending}")
            except TimeoutError:
                if last:
                    raise SweetError(f"The process that reads texts was silent for {_WAIT_SECONDS:g} s.") from None
        raise AssertionError

    def _replies(self, requests: Sequence[bytes]) -> Iterator[Reply | Unreadable]:
        """Yield the replies of the process, which is started if there is none; fewer if it has grown."""
        in_step = False
        try:
            process = self._process = self._process or self._started()
            for reply in process.ask(requests):
                yield reply
                if process.finished:
                    return
            in_step = True
        finally:
            if not in_step:  # it has grown or ended, or an error leaves its replies out of step
                self._close()

    def _started(self) -> _Process:
        try:
            return self._start()
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
