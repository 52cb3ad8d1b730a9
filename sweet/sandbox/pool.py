"""The sandbox: a pool of jails that run programs and give their results back in order.

For every answer the parent makes a pipe, hands its end and the program to a zygote, which forks a child, and reads the
results itself. It keeps the clock: a call that gives nothing for its time ends the child, and the calls after it run in
a fresh one (`_Run` says for how long). What comes back is data to be parsed, never a verdict: whatever does not parse
ends the child as a crash. A zygote that dies or falls silent is replaced.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import secrets
import select
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from sweet.sandbox.jail import Jail, JailError, Tier
from sweet.sandbox.program import MARSHAL, Execution, Limits, Program, Result, Warmth, compiled
from sweet.sandbox.resource_monitor import excess
from sweet.sandbox.stream import Stream, Worker

_START_SECONDS = 5.0
"""A jail whose child has not begun by then is taken for broken."""
_HEADER_BYTES = 200
_LOOK_SECONDS = 0.1
"""How often the parent looks at what a call holds that takes long."""
_UNDISTURBED_MS = 5
_ABANDONED = "The answers were abandoned."
_HANGING = 2
"""A program of which so many calls ran out of time and none ended is taken to hang on all."""


class Sandbox:
    """Runs programs under one tier. Made by `open_sandbox`. Several streams may be under way at once."""

    def __init__(self, tier: Tier, workers: int, limits: Limits) -> None:
        self.tier = tier
        self.limits = limits
        self._workers = [_Worker(tier, limits) for _ in range(workers)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def run(self, programs: Iterable[Program]) -> list[Execution]:
        """Run all programs, several at once, and give their executions in the same order; errors as of `stream`."""
        return list(self.stream(programs))

    def stream(self, programs: Iterable[Program]) -> Generator[Execution, None, None]:
        """The executions of programs in their order, each as soon as those before it are there too.

        Programs are taken as they are needed (sweet.sandbox.stream.AHEAD), by other threads than the caller's.

        Raises:
            JailError: jails cannot be kept running on this machine.
        """
        return Stream(programs, self._idle).through(len(self._workers))

    def close(self) -> None:
        """End every jail."""
        for worker in self._workers:
            worker.close()


@contextmanager
def open_jails(tier: Tier, workers: int, limits: Limits) -> Iterator[Sandbox]:
    """A sandbox of a tier that is known to work (see sweet.sandbox.tiers.open_sandbox)."""
    box = Sandbox(tier, workers, limits)
    try:
        yield box
    finally:
        box.close()


class _Worker:
    """A jail of each warmth, started when it is first needed, and all anew when one has been lost."""

    def __init__(self, tier: Tier, limits: Limits) -> None:
        self.tier, self.limits = tier, limits
        self.jails: dict[Warmth, Jail] = {}
        self.abandoned = False

    def close(self) -> None:
        while self.jails:
            self.jails.popitem()[1].kill()

    def abandon(self) -> None:
        """Have the program that is under way in another thread end at once, by a JailError."""
        self.abandoned = True
        self.close()

    def run(self, program: Program) -> Execution:
        """Raises JailError where jails cannot be kept running, or the worker was abandoned."""
        began = time.monotonic()
        run = _Run(program, program.within(self.limits), self._child)
        run.through()
        return Execution(run.ordered(), time.monotonic() - began)

    def _jail(self, warmth: Warmth) -> Jail:
        if warmth not in self.jails:
            self.jails[warmth] = Jail(self.tier, self.limits, warmth=warmth)
        if self.abandoned:
            raise JailError(_ABANDONED)
        return self.jails[warmth]

    def _child(self, program: Program, calls: Sequence[str], limits: Limits, budget: float) -> _Child:
        """A child's results of the calls, up to the one that ended it; at least one.

        A jail that is lost before its child has begun says nothing about the program: it is replaced and asked again.
        """
        lost: JailError | None = None
        for _ in range(0 if self.abandoned else 3):
            child = _Child(program, calls, limits, budget)
            try:
                child.follow(self._jail(program.warmth))
            except JailError as broken:
                self.close()
                if not child.begun:
                    lost = broken
                    continue
                child.results = child.results or [Result("crash", error="crash", message="it took its jail down")]
            except BaseException:
                self.close()
                raise
            return child
        if lost is None:
            raise JailError(_ABANDONED)
        raise JailError(f"Jails do not stay alive on this machine: {lost.what}", fix="sweet doctor")


class _Run:
    """The calls of one program, over as many children as they need.

    One child takes them all, and a fresh one goes on behind a call that ended its child. Once a call has run out of
    time, those behind it are sifted: each has a fraction of the time, and what needs longer is put off. What was put
    off then has its full time, one call after the other, until `Limits.late_calls` have run out of it; where no call at
    all has ended, only one more. An answer that hangs on every call so costs two time-outs, and one that hangs on some
    keeps its others.
    """

    def __init__(self, program: Program, limits: Limits, child: Callable[..., _Child]) -> None:
        self.program, self.limits, self.child = program, limits, child
        self.budget = limits.total_seconds
        self.results: dict[int, Result] = {}

    def through(self) -> None:
        late = 0
        put_off: list[int] = []
        open_calls = list(range(len(self.program.calls)))
        while open_calls and self.budget > 0:
            done = self._try(open_calls, self.limits.sift_seconds if late else self.limits.call_seconds)
            if self.results[done[-1]].status == "timeout":
                put_off += done[-1:] if late else []
                late = 1
            open_calls = open_calls[len(done) :]
        for index in reversed(put_off):
            ended = any(result.status in ("value", "raised") for result in self.results.values())
            if late >= (self.limits.late_calls if ended else _HANGING) or self.budget <= 0:
                break
            self._try([index], self.limits.call_seconds)
            late += self.results[index].status == "timeout"

    def _try(self, indices: list[int], seconds: float) -> list[int]:
        """Run these calls in one child and give those it got to."""
        calls = [self.program.calls[index] for index in indices]
        child = self.child(self.program, calls, replace(self.limits, call_seconds=seconds), self.budget)
        self.budget -= child.seconds
        self.results.update(zip(indices, child.results, strict=False))
        return indices[: len(child.results)]

    def ordered(self) -> tuple[Result, ...]:
        """One result a call; one that was never tried is out of time."""
        spent = Result("timeout", error="timeout", message="out of time for all calls together")
        return tuple(self.results.get(index, spent) for index in range(len(self.program.calls)))


class _Child:
    """One child and what it reports. `budget` is the wall clock it has for all its calls, `seconds` what they took."""

    def __init__(self, program: Program, calls: Sequence[str], limits: Limits, budget: float) -> None:
        self.calls = calls
        self.limits, self.budget = limits, budget
        self.nonce = secrets.token_hex(16)
        self.begun: float | None = None
        self.seconds = 0.0
        self.results: list[Result] = []
        self.buffer = bytearray()
        self.source, self.scoped = program.source, program.scoped

    def _order(self, same_python: bool) -> bytes:
        """What the child is to do; the code with its source where the jail's interpreter is this one."""
        order: dict[str, Any] = {
            "source": self.source,
            "calls": tuple(self.calls),
            "scoped": self.scoped,
            "nonce": self.nonce,
            "value_bytes": self.limits.value_bytes,
            "cpu_seconds": int(self.limits.total_seconds) + 2,
        }
        if same_python:
            order["code"] = compiled(self.source)
            order["call_codes"] = tuple(compiled(call.strip(), "eval") for call in self.calls)
        return marshal.dumps(order, marshal.version if same_python else MARSHAL)

    def follow(self, jail: Jail) -> None:
        """Let the child run and read what it reports, to its end."""
        reading, writing = os.pipe()
        try:
            try:
                with _holding(self._order(jail.same_python)) as order:
                    jail.fork(order, writing)
            finally:
                os.close(writing)
            ending = self._read(reading, jail.root)
            self.seconds = time.monotonic() - self.begun if self.begun else 0.0
        finally:
            os.close(reading)
        if len(self.results) == len(self.calls):
            jail.release()
            return
        status = jail.bury()
        if not self.begun and ending is None:
            raise JailError("The sandbox's zygote could not fork.")
        self.results.append(ending or _ending(status))

    def _read(self, reading: int, root: int | None) -> Result | None:
        """Read results until all are there, the pipe closes (None), the format breaks, time is up or it holds too much.

        `root` is the process whose descendants are this child and what it started, where the parent can see them.
        """
        poll = select.poll()
        poll.register(reading, 0)
        poll.poll(_UNDISTURBED_MS)  # most children end within it, and are read at once instead of call by call
        poll.modify(reading, select.POLLIN)
        look = time.monotonic() + _LOOK_SECONDS
        limit = time.monotonic() + _START_SECONDS
        while len(self.results) < len(self.calls):
            now = time.monotonic()
            if now >= limit:
                if not self.begun:
                    raise JailError("The sandbox's zygote does not fork.")
                return Result("timeout", error="timeout", message=f"no result within {self.limits.call_seconds:g} s")
            if now >= look:
                too_much = excess(root, self.limits.memory_bytes, self.limits.tasks) if root else None
                if too_much:
                    return Result("crash", error="crash", message=too_much)
                look = time.monotonic() + _LOOK_SECONDS
            if not poll.poll(max(0.0, min(limit, look) - now) * 1000):
                continue
            data = os.read(reading, 1 << 16)
            if not data:
                return None
            self.buffer += data
            try:
                told = self._parse()
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return Result("crash", error="crash", message="its results were garbled")
            if told:
                limit = min(time.monotonic() + self.limits.call_seconds, (self.begun or 0.0) + self.budget)
        return None

    def _parse(self) -> bool:
        """Take the complete records off the buffer; whether there was one. ValueError where it is none of ours."""
        told = False
        while True:
            end = self.buffer.find(b"\n", 0, _HEADER_BYTES)
            if end < 0:
                if len(self.buffer) >= _HEADER_BYTES:
                    raise ValueError("no header")
                return told
            nonce, index, kind, length = self.buffer[:end].decode("ascii").split(" ")
            size = int(length)
            expected = len(self.results) if self.begun else -1
            if nonce != self.nonce or int(index) != expected or not 0 <= size <= self.limits.value_bytes + 4096:
                raise ValueError("not a record")
            if len(self.buffer) < end + 1 + size:
                return told
            text = self.buffer[end + 1 : end + 1 + size].decode("ascii")
            del self.buffer[: end + 1 + size]
            self._take(kind, text)
            told = True

    def _take(self, kind: str, text: str) -> None:
        if kind == "begun":
            self.begun = time.monotonic()
        elif kind == "value":
            self.results.append(Result("value", value=json.loads(text)))
        elif kind == "raised":
            self.results.append(_raised(json.loads(text)))
        else:
            raise ValueError("unknown kind")
        if len(self.results) > len(self.calls):
            raise ValueError("too many results")


@contextmanager
def _holding(data: bytes) -> Iterator[int]:
    """A descriptor of a file without a name that holds the data, open at its beginning."""
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


def _raised(told: dict[str, Any]) -> Result:
    line = told["line"]
    return Result(
        "raised",
        error=str(told["type"])[:100],
        message=str(told["message"])[:300],
        line=line if isinstance(line, int) else None,
    )


def _ending(status: int) -> Result:
    """What a child's wait status says of a call that gave no result."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return Result("timeout", error="timeout", message="out of processor time")
        with contextlib.suppress(ValueError):
            return Result("crash", error="crash", message=f"killed by {signal.Signals(number).name}")
        return Result("crash", error="crash", message=f"killed by signal {number}")
    return Result("crash", error="crash", message=f"its process ended with status {os.waitstatus_to_exitcode(status)}")
