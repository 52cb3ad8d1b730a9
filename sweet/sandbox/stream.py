"""Programs on their way through the sandbox's workers, and their executions back in order.

A thread for each worker takes the next program and an idle worker, and lays down what came of it; the caller picks the
executions up in the programs' order. Programs are taken as they are needed, so making them goes on while others run,
and of any number few are in memory. Whoever stops picking up ends what is under way.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterable
from queue import SimpleQueue
from typing import Protocol

from sweet.sandbox.program import Execution, Program

AHEAD = 1024
"""Programs that may be under way or wait for one before them: so one that hangs holds up nobody."""


class Worker(Protocol):
    """Runs one program at a time. Once `abandoned`, the one under way ends by an error, and so does any other."""

    abandoned: bool

    def run(self, program: Program) -> Execution: ...

    def abandon(self) -> None: ...


class Stream:
    """One caller's programs on their way through whichever workers are idle."""

    def __init__(self, programs: Iterable[Program], idle: SimpleQueue[Worker]) -> None:
        self._programs, self._idle = enumerate(programs), idle
        self._taking = threading.Lock()
        self._room = threading.Semaphore(AHEAD)
        self._news = threading.Condition()
        self._done: dict[int, Execution] = {}
        self._busy: set[Worker] = set()
        self._threads: list[threading.Thread] = []
        self._working = 0
        self._over = self._abandoned = False
        self._broken: BaseException | None = None

    def through(self, threads: int) -> Generator[Execution, None, None]:
        self._threads = [threading.Thread(target=self._work, name="sandbox") for _ in range(threads)]
        self._working = threads
        for thread in self._threads:
            thread.start()
        try:
            for index in itertools.count():
                with self._news:
                    while index not in self._done and self._working:
                        self._news.wait()
                    execution = self._done.pop(index, None)
                if self._broken is not None:
                    raise self._broken
                if execution is None:
                    return
                self._room.release()
                yield execution
        finally:
            self._stop()

    def _stop(self) -> None:
        """End the threads, those in the middle of a program too: nobody waits for it any more."""
        self._over = self._abandoned = True
        self._room.release(len(self._threads))
        for worker in list(self._busy):
            worker.abandon()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            while True:
                self._room.acquire()
                with self._taking:
                    index, program = (0, None) if self._over else next(self._programs, (0, None))
                if program is None:
                    return
                execution = self._run(program)
                with self._news:
                    self._done[index] = execution
                    self._news.notify()
        except BaseException as error:
            self._broken, self._abandoned = self._broken or error, True
        finally:
            self._over = True
            self._room.release(len(self._threads))
            with self._news:
                self._working -= 1
                self._news.notify()

    def _run(self, program: Program) -> Execution:
        worker = self._idle.get()
        worker.abandoned = self._abandoned
        self._busy.add(worker)
        try:
            return worker.run(program)
        finally:
            self._busy.discard(worker)
            self._idle.put(worker)
