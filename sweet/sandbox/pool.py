"""The sandbox: a pool of jails that run programs and return their results in order.

For every answer the parent creates a pipe, passes its writing end and the program to a zygote, which forks a child, and
reads the results itself. The parent measures the time: a call without a result in time ends the child, and the calls
after it run in a new one (with the times in `_Run`). The results are data to be parsed, never verdicts: whatever does
not parse counts as a crash of the child. A value is kept as its text, and one that exceeds the memory for all values of
its program is replaced by the text of a value that is too large. A zygote that dies or does not answer is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sweet.sandbox.jail import Jail, JailError
from sweet.sandbox.program import MARSHAL, Code, Execution, Limits, Program, Result, Tier, Warmth, parsed_json
from sweet.sandbox.resource_monitor import excess
from sweet.sandbox.stream import IdleWorkers, Stream

_START_SECONDS = 5.0
"""A jail whose child has not begun by then counts as broken."""
_HEADER_BYTES = 200
_ERROR_BYTES = 8192
"""Maximum length of the record of an exception."""
_RESULT_BYTES = 120
"""Memory of a result beside its text."""
_TOO_LARGE = '{"toolarge":null}'
_MONITOR_SECONDS = 0.1
"""Interval at which the parent checks the memory and tasks of a long call."""
_FIRST_WAIT_MS = 5
_ABANDONED = "The answers were abandoned."
_NOT_RUN = Result("timeout", error="timeout", message="out of time for all calls together")
_HANGING = 2
"""If this many calls of a program timed out and none ended, all are assumed to hang."""


class Sandbox:
    """Runs programs under one tier. Created by `open_sandbox`. Several streams may run at once."""

    def __init__(self, tier: Tier, workers: int, limits: Limits) -> None:
        self.tier = tier
        self.limits = limits
        self._idle = IdleWorkers()
        self._workers = [_Worker(tier, limits, self._idle.has_started) for _ in range(workers)]
        for worker in self._workers:
            self._idle.add(worker)

    def run(self, programs: Iterable[Program]) -> list[Execution]:
        """Run all programs, several at once, and return their executions in the same order; raises as `stream`."""
        return list(self.stream(programs))

    def stream(self, programs: Iterable[Program]) -> Generator[Execution, None, None]:
        """Yield the executions of programs in their order, each as soon as it and those before it are done.

        Programs are consumed as they are needed (sweet.sandbox.stream.AHEAD), by other threads than the caller's.

        Raises:
            JailError: jails cannot be kept running on this machine.
        """
        return Stream(programs, self._idle).results(len(self._workers))

    def close(self) -> None:
        """Kill every jail."""
        for worker in self._workers:
            worker.close()


@contextmanager
def open_jails(tier: Tier, workers: int, limits: Limits) -> Iterator[Sandbox]:
    """Open a sandbox of a tier that is known to work (see sweet.sandbox.tiers.open_sandbox)."""
    box = Sandbox(tier, workers, limits)
    try:
        yield box
    finally:
        box.close()


class _Worker:
    """A jail of each warmth, started when first needed; all are replaced when one of them is lost."""

    def __init__(self, tier: Tier, limits: Limits, on_start: Callable[[_Worker], None]) -> None:
        self.tier, self.limits, self.on_start = tier, limits, on_start
        self.jails: dict[Warmth, Jail] = {}
        self.abandoned = False

    def close(self) -> None:
        while self.jails:
            self.jails.popitem()[1].kill()

    def abandon(self) -> None:
        """Make the program that runs in another thread end at once, by a JailError."""
        self.abandoned = True
        self.close()

    def run(self, program: Program) -> Execution:
        """Run a program.

        Raises:
            JailError: jails cannot be kept running, or the worker was abandoned.
        """
        began = time.monotonic()
        run = _Run(program, program.within(self.limits), self._child)
        run.execute()
        return Execution(run.ordered(), time.monotonic() - began, run.room.used)

    def _jail(self, warmth: Warmth) -> Jail:
        if warmth not in self.jails:
            self.jails[warmth] = Jail(self.tier, self.limits, warmth=warmth)
            self.on_start(self)
        if self.abandoned:
            raise JailError(_ABANDONED)
        return self.jails[warmth]

    def _child(self, program: Program, limits: Limits, budget: float, room: _Room) -> _Child:
        """Run a program in a child, and return it with the results up to the call that ended it; at least one.

        A jail that is lost before its child has begun says nothing about the program: it is replaced, and the program
        runs again.
        """
        lost: JailError | None = None
        for _ in range(0 if self.abandoned else 3):
            child = _Child(program, limits, budget, room)
            try:
                child.run(self._jail(program.warmth))
            except JailError as broken:
                self.close()
                if not child.begun:
                    lost = broken
                    continue
                child.results = child.results or [Result("crash", error="crash", message="it ended its jail")]
            except BaseException:
                self.close()
                raise
            return child
        if lost is None:
            raise JailError(_ABANDONED)
        raise JailError(f"Jails do not stay alive on this machine: {lost.what}", fix="sweet doctor")


class _Run:
    """Runs the calls of one program in as many children as needed.

    The first child gets all calls, and a new one continues after a call that ended its child. Once a call has timed
    out, those after it are sifted: each gets a fraction of the time, and those that need longer are postponed. The
    postponed calls then get their full time, one after another, until `Limits.late_calls` have timed out; if no call at
    all has ended, only one more. An answer that hangs on every call therefore costs two time-outs, and one that hangs
    on some calls keeps the results of the others.
    """

    def __init__(self, program: Program, limits: Limits, child: Callable[..., _Child]) -> None:
        self.program, self.limits, self.child = program, limits, child
        self.budget = limits.total_seconds
        self.results: dict[int, Result] = {}
        self.room = _Room(limits.all_bytes)

    def execute(self) -> None:
        late = 0
        postponed: list[int] = []
        open_calls = list(range(len(self.program.calls)))
        while open_calls and self.budget > 0:
            tried = self._try(open_calls, self.limits.sift_seconds if late else self.limits.call_seconds)
            if self.results[tried[-1]].status == "timeout":
                postponed += tried[-1:] if late else []
                late = 1
            open_calls = open_calls[len(tried) :]
        for index in reversed(postponed):
            ended = any(result.status in ("value", "raised") for result in self.results.values())
            if late >= (self.limits.late_calls if ended else _HANGING) or self.budget <= 0:
                break
            self._try([index], self.limits.call_seconds)
            late += self.results[index].status == "timeout"

    def _try(self, indices: list[int], seconds: float) -> list[int]:
        """Run these calls in one child, and return those that have a result."""
        whole = len(indices) == len(self.program.calls)
        program = self.program if whole else self.program.only(indices)
        limits = self.limits if seconds == self.limits.call_seconds else replace(self.limits, call_seconds=seconds)
        child = self.child(program, limits, self.budget, self.room)
        self.budget -= child.seconds
        self.results.update(zip(indices, child.results, strict=False))
        return indices[: len(child.results)]

    def ordered(self) -> tuple[Result, ...]:
        """Return one result for each call; a call that was never run counts as timed out."""
        return tuple([self.results.get(index, _NOT_RUN) for index in range(len(self.program.calls))])


class _Room:
    """The memory for the results of one program.

    Attributes:
        used: bytes that they take.
    """

    def __init__(self, most: int) -> None:
        self.left, self.used = most, 0
        self._texts: dict[str, str] = {}

    def interned(self, text: str) -> str:
        """Return the text of a value, or the equal one that is kept; that of a value too large if no memory is left.

        Raises:
            ValueError, RecursionError: it is not the text of a value.
        """
        self.used += _RESULT_BYTES
        size = sys.getsizeof(text)
        if text in self._texts or size > self.left:
            return self._texts.get(text, _TOO_LARGE)
        parsed_json(text)
        self.left -= size
        self.used += size
        return self._texts.setdefault(text, text)


class _Child:
    """One child and its results.

    Attributes:
        budget: the time for all its calls, in seconds.
        seconds: the time that this process has waited for the calls.
        room: the memory for its results.
    """

    def __init__(self, program: Program, limits: Limits, budget: float, room: _Room) -> None:
        self.program, self.calls = program, program.calls
        self.limits, self.budget, self.room = limits, budget, room
        self.nonce = hashlib.sha256("\n".join(self.calls).encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()
        self.begun = False
        self.seconds = 0.0
        self.results: list[Result] = []
        self.buffer = bytearray()

    def _order(self, same_python: bool) -> bytes:
        """Return the order for the child, with compiled code if the jail runs the same interpreter."""
        order: dict[str, Any] = {
            "program": _described(self.program, self.program.code if same_python else None),
            "nonce": self.nonce.decode(),
            "value_bytes": self.limits.value_bytes,
            "cpu_seconds": int(self.limits.total_seconds) + 2,
        }
        return marshal.dumps(order, MARSHAL)

    def run(self, jail: Jail) -> None:
        """Fork the child and read its results to the end."""
        reading, writing = os.pipe()
        try:
            try:
                with _holding(self._order(jail.same_python)) as order:
                    jail.fork(order, writing)
            finally:
                os.close(writing)
            ending = self._read(reading, jail.root)
        finally:
            os.close(reading)
        if len(self.results) == len(self.calls):
            jail.release()
            return
        status = jail.reap()
        if not self.begun and ending is None:
            raise JailError("The sandbox's zygote could not fork.")
        self.results.append(ending or _ending(status))

    def _read(self, reading: int, root: int | None) -> Result | None:
        """Read results; return how the child failed, or None if all are there or the pipe has closed.

        Only the time that this process waits counts. If it did not run for a while (another thread had the interpreter,
        the machine was busy), the child may not have run either; and a result that lies in the pipe was in time.

        Args:
            root: the zygote's process id, whose descendants are the child and its processes; None if it is not visible.
        """
        poll = select.poll()
        poll.register(reading, 0)
        poll.poll(_FIRST_WAIT_MS)  # most children end within it, so that all calls are read at once
        poll.modify(reading, select.POLLIN)
        next_check = time.monotonic() + _MONITOR_SECONDS
        seconds_left = _START_SECONDS
        while len(self.results) < len(self.calls):
            began = time.monotonic()
            wait = max(0.0, min(seconds_left, next_check - began))
            ready = poll.poll(wait * 1000)
            now = time.monotonic()
            waited = min(now - began, wait)
            seconds_left -= waited
            self.seconds += waited if self.begun else 0.0
            if now >= next_check:
                too_much = excess([root], self.limits.memory_bytes, self.limits.tasks).get(root) if root else None
                if too_much:
                    return Result("crash", error="crash", message=too_much)
                next_check = time.monotonic() + _MONITOR_SECONDS
            if not ready:
                if seconds_left > 0:
                    continue
                if not self.begun:
                    raise JailError("The sandbox's zygote does not fork.")
                return Result("timeout", error="timeout", message=f"no result within {self.limits.call_seconds:g} s")
            data = os.read(reading, 1 << 16)
            if not data:
                return None
            self.buffer += data
            try:
                received = self._parse()
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return Result("crash", error="crash", message="its results were garbled")
            if received:
                seconds_left = min(self.limits.call_seconds, self.budget - self.seconds)
        return None

    def _parse(self) -> bool:
        """Parse the complete records in the buffer, and return whether there was one.

        Raises:
            ValueError: a record is malformed.
        """
        buffer, parsed = self.buffer, 0
        while True:
            end = buffer.find(b"\n", parsed, parsed + _HEADER_BYTES)
            if end < 0:
                if len(buffer) >= parsed + _HEADER_BYTES:
                    raise ValueError("no header")
                break
            nonce, index, kind, length = buffer[parsed:end].split(b" ")
            size = int(length)
            expected = len(self.results) if self.begun else -1
            most = self.limits.value_bytes if kind == b"value" else 0
            if nonce != self.nonce or int(index) != expected or not 0 <= size <= most + _ERROR_BYTES:
                raise ValueError("not a record")
            after = end + 1 + size
            if len(buffer) < after:
                break
            self._take(kind, buffer[end + 1 : after].decode("ascii"))
            parsed = after
        del buffer[:parsed]
        return parsed > 0

    def _take(self, kind: bytearray, text: str) -> None:
        if kind == b"value":
            self.results.append(Result("value", self.room.interned(text)))
        elif kind == b"begun":
            self.begun = True
        elif kind == b"raised":
            self.results.append(_raised(parsed_json(text)))
            self.room.used += _RESULT_BYTES + len(text)
        else:
            raise ValueError("unknown kind")
        if len(self.results) > len(self.calls):
            raise ValueError("too many results")


def _described(program: Program, code: Code | None) -> dict[str, Any]:
    """Return a program as children read it."""
    return {
        "source": "" if code and code.source else program.source,  # its comments would move addresses
        "uses_random": program.uses_random,
        "calls": program.calls,
        "code": code and code.source,
        "call_codes": code and code.calls,
        "scoped": program.scoped,
    }


@contextmanager
def _holding(data: bytes) -> Iterator[int]:
    """Open an anonymous file with the data, positioned at its beginning, and yield its descriptor."""
    if not hasattr(os, "memfd_create"):  # systems other than Linux
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(data)
            file.seek(0)
            yield file.fileno()
        return
    descriptor = os.memfd_create("order")
    try:
        os.pwrite(descriptor, data, 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _raised(record: dict[str, Any]) -> Result:
    line = record["line"]
    return Result(
        "raised",
        error=str(record["type"])[:100],
        message=str(record["message"])[:300],
        line=line if isinstance(line, int) else None,
    )


def _ending(status: int) -> Result:
    """Return the result of a call whose child ended with this wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return Result("timeout", error="timeout", message="out of processor time")
        with contextlib.suppress(ValueError):
            return Result("crash", error="crash", message=f"killed by {signal.Signals(number).name}")
        return Result("crash", error="crash", message=f"killed by signal {number}")
    return Result("crash", error="crash", message=f"its process ended with status {os.waitstatus_to_exitcode(status)}")
