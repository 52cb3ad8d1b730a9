"""Run a stream of programs on the sandbox's workers, and yield their executions in order.

A thread for each worker takes the next program and an idle worker, and stores the execution; the caller gets the
executions in the order of the programs. Programs are consumed as they are needed, so that they are created while others
run, and few of them are in memory: not more than `AHEAD`, and no new one while those that wait for an earlier one have
`AHEAD_BYTES`. If the caller stops iterating, the running programs are ended.

The start of a jail takes as long as ten programs. So a worker that has one is preferred, and of the others at most half
as many start at once as have started before, at least one: few programs start few jails, and many programs soon have
all of them. Those with a jail take turns, because a zygote still reaps its last child after the result.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Generator, Iterable
from typing import Protocol

from sweet.sandbox.program import Execution, Program

AHEAD = 1024
"""Maximum number of programs that run or wait for an earlier one, so that one that hangs does not block the others."""
AHEAD_BYTES = 16 * 2**20
"""Bytes of executions and of their programs, as texts, above which no further program is started."""


class Worker(Protocol):
    """Runs one program at a time. Once it is `abandoned`, the running program and all others end by an error."""

    abandoned: bool

    def run(self, program: Program) -> Execution: ...

    def abandon(self) -> None: ...


class IdleWorkers:
    """The workers that run no program. All streams of a sandbox take theirs from it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._unused: list[Worker] = []
        self._used: deque[Worker] = deque()
        self._starting: set[Worker] = set()
        self._started = 0

    def add(self, worker: Worker) -> None:
        """Add a worker that has run nothing."""
        self._unused.append(worker)

    def take(self) -> Worker:
        """Return a worker, once there is one, or once another may be started."""
        with self._changed:
            while not self._used and (not self._unused or len(self._starting) >= max(1, self._started // 2)):
                self._changed.wait()
            if self._used:
                return self._used.popleft()
            worker = self._unused.pop()
            self._starting.add(worker)
            return worker

    def has_started(self, worker: Worker) -> None:
        """Let another worker be started: this one's jail is there, however long its program takes."""
        with self._changed:
            if worker in self._starting:
                self._starting.remove(worker)
                self._started += 1
                self._changed.notify_all()

    def put_back(self, worker: Worker) -> None:
        """Add a worker whose program has ended."""
        self.has_started(worker)
        with self._changed:
            self._used.append(worker)
            self._changed.notify()


class Stream:
    """The programs of one caller, run on the workers that are idle."""

    def __init__(self, programs: Iterable[Program], idle: IdleWorkers) -> None:
        self._programs, self._idle = enumerate(programs), idle
        self._taking = threading.Lock()
        self._room = threading.Semaphore(AHEAD)
        self._news = threading.Condition()
        self._done: dict[int, tuple[Execution, int]] = {}
        self._next = 0  # the execution that the caller waits for
        self._waiting_bytes = 0
        self._busy: set[Worker] = set()
        self._threads: list[threading.Thread] = []
        self._working = 0
        self._over = self._abandoned = False
        self._broken: BaseException | None = None

    def results(self, threads: int) -> Generator[Execution, None, None]:
        self._threads = [threading.Thread(target=self._work, name="sandbox") for _ in range(threads)]
        self._working = threads
        for thread in self._threads:
            thread.start()
        try:
            for self._next in itertools.count():
                with self._news:
                    while self._next not in self._done and self._working:
                        self._news.wait()
                    finished = self._done.pop(self._next, None)
                    if finished is not None:
                        if self._waiting_bytes > AHEAD_BYTES:
                            self._news.notify_all()
                        self._waiting_bytes -= finished[1]
                if self._broken is not None:
                    raise self._broken
                if finished is None:
                    return
                self._room.release()
                yield finished[0]
        finally:
            self._stop()

    def _stop(self) -> None:
        """End all threads, including those that run a program."""
        with self._news:
            self._over = self._abandoned = True
            self._news.notify_all()
        self._room.release(len(self._threads))
        for worker in list(self._busy):
            worker.abandon()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            while True:
                self._room.acquire()
                with self._news:  # the earliest program has been started, so that its end makes room
                    while self._waiting_bytes > AHEAD_BYTES and not self._over:
                        self._news.wait()
                with self._taking:
                    index, program = (0, None) if self._over else next(self._programs, (0, None))
                if program is None:
                    return
                execution = self._run(program)
                size = execution.size + program.size
                with self._news:
                    self._done[index] = execution, size
                    self._waiting_bytes += size
                    if index == self._next:
                        self._news.notify_all()
        except BaseException as error:
            self._broken, self._abandoned = self._broken or error, True
        finally:
            self._room.release(len(self._threads))
            with self._news:
                self._over = True
                self._working -= 1
                self._news.notify_all()

    def _run(self, program: Program) -> Execution:
        worker = self._idle.take()
        worker.abandoned = self._abandoned
        self._busy.add(worker)
        try:
            return worker.run(program)
        finally:
            self._busy.discard(worker)
            self._idle.put_back(worker)
