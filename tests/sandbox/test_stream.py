"""The programs of a stream: what waits for one that takes long is bounded in bytes, and few start few workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from sweet.sandbox.program import Execution, Program
from sweet.sandbox.stream import AHEAD_BYTES, IdleWorkers, Stream, Worker

WORKERS = 3
MIB = 2**20


class OneLong:
    """A worker on which the first program ends when `released` is set; each execution has 1 MiB."""

    abandoned = False

    def __init__(self, released: threading.Event, idle: IdleWorkers) -> None:
        self.released, self.idle = released, idle

    def run(self, program: Program) -> Execution:
        self.idle.has_started(self)
        if program.source == "0":
            assert self.released.wait(60)
        return Execution((), float(program.source), MIB)

    def abandon(self) -> None:
        self.released.set()


def test_large_executions_that_wait_for_an_earlier_one_stop_the_stream_until_it_ends() -> None:
    released, idle, started = threading.Event(), IdleWorkers(), []
    for _ in range(WORKERS):
        idle.add(OneLong(released, idle))

    def programs() -> Iterator[Program]:
        for number in range(200):
            started.append(number)
            yield Program(str(number), ())

    stream = Stream(programs(), idle)
    found: list[float] = []
    reading = threading.Thread(target=lambda: found.extend(done.seconds for done in stream.results(WORKERS)))
    reading.start()
    deadline = time.monotonic() + 60
    while len(started) < AHEAD_BYTES // MIB and time.monotonic() < deadline:
        time.sleep(0.01)
    reading.join(0.2)
    assert AHEAD_BYTES // MIB <= len(started) <= AHEAD_BYTES // MIB + WORKERS + 1, "it goes on to the bound"
    released.set()
    reading.join(60)
    assert found == list(range(200)), "all are yielded in order"


def test_a_caller_that_stops_ends_a_stream_that_waits_for_room() -> None:
    released, idle = threading.Event(), IdleWorkers()
    for _ in range(WORKERS):
        idle.add(OneLong(released, idle))
    stream = Stream((Program(str(number), ()) for number in range(1, 200)), idle)
    results = stream.results(WORKERS)
    assert next(results).seconds == 1
    results.close()
    assert not any(thread.is_alive() for thread in threading.enumerate() if thread.name == "sandbox")


class Counted:
    """A worker that notes its first program; each program ends when `together` of them run."""

    abandoned = False

    def __init__(self, idle: IdleWorkers, first: list[str], together: threading.Barrier) -> None:
        self.idle, self.first, self.together = idle, first, together
        self.started = False

    def run(self, program: Program) -> Execution:
        if not self.started:
            self.started = True
            self.first.append(program.source)
            self.idle.has_started(self)
        self.together.wait(60)
        return Execution((), float(program.source))

    def abandon(self) -> None:
        self.together.abort()


def counted(together: int) -> tuple[IdleWorkers, list[str]]:
    """Eight workers, and the first program of each that has run one."""
    idle, first, barrier = IdleWorkers(), list[str](), threading.Barrier(together)
    for _ in range(8):
        idle.add(Counted(idle, first, barrier))
    return idle, first


def test_programs_that_come_one_after_another_start_one_worker() -> None:
    idle, first = counted(together=1)
    for number in range(20):
        assert len(list(Stream([Program(str(number), ())], idle).results(8))) == 1
    assert first == ["0"]


def test_all_workers_are_started_for_programs_that_take_long() -> None:
    idle, first = counted(together=8)
    stream = Stream((Program(str(number), ()) for number in range(16)), idle)
    assert [done.seconds for done in stream.results(8)] == list(range(16))
    assert len(first) == 8


def test_at_most_half_as_many_workers_start_at_once_as_have_started() -> None:
    idle, _ = counted(together=1)
    taken: list[Worker] = []
    threads = [threading.Thread(target=lambda: taken.append(idle.take())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for expected in (1, 2, 3, 4, 6, 8):
        deadline = time.monotonic() + 60
        while len(taken) < expected and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)  # in which no other one may come
        assert len(taken) == expected
        for worker in taken:
            idle.has_started(worker)
    for thread in threads:
        thread.join(60)
