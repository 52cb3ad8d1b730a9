"""The programs of a stream: what waits for one that takes long is bounded in bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

from sweet.sandbox.program import Execution, Program
from sweet.sandbox.stream import AHEAD_BYTES, Stream, Worker

WORKERS = 3
MIB = 2**20


class OneLong:
    """A worker on which the first program ends when `released` is set; each execution has 1 MiB."""

    abandoned = False

    def __init__(self, released: threading.Event) -> None:
        self.released = released

    def run(self, program: Program) -> Execution:
        if program.source == "0":
            assert self.released.wait(60)
        return Execution((), float(program.source), MIB)

    def abandon(self) -> None:
        self.released.set()


def test_large_executions_that_wait_for_an_earlier_one_stop_the_stream_until_it_ends() -> None:
    released, idle, started = threading.Event(), SimpleQueue[Worker](), []
    for _ in range(WORKERS):
        idle.put(OneLong(released))

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
    released, idle = threading.Event(), SimpleQueue[Worker]()
    for _ in range(WORKERS):
        idle.put(OneLong(released))
    stream = Stream((Program(str(number), ()) for number in range(1, 200)), idle)
    results = stream.results(WORKERS)
    assert next(results).seconds == 1
    results.close()
    assert not any(thread.is_alive() for thread in threading.enumerate() if thread.name == "sandbox")
