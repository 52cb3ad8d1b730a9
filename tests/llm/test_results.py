"""Results of a thread for the coroutines of a loop: each arrives, and those of one time wake the loop once."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from sweet.llm.embedded import LoopResults


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread wakes it."""

    woken = 0

    def _write_to_self(self) -> None:
        self.woken += 1
        super()._write_to_self()  # type: ignore[misc]


def run(work: Any) -> Any:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(work)


def test_results_that_are_done_at_one_time_wake_the_loop_once() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        results = LoopResults(loop)
        futures: list[Future[int]] = [Future() for _ in range(5)]
        waiting = [results.of(future) for future in futures]

        def finish() -> None:
            for number, future in enumerate(futures[:3]):
                future.set_result(number)
            futures[3].set_exception(ValueError("four"))
            futures[4].cancel()
            futures[4].set_running_or_notify_cancel()

        thread = threading.Thread(target=finish)
        thread.start()
        thread.join()  # the loop, which waits here, has seen none of them
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert found[:3] == [0, 1, 2]
        assert isinstance(found[3], ValueError)
        assert isinstance(found[4], asyncio.CancelledError)
        assert loop.woken == 1
        late: Future[int] = Future()
        threading.Timer(0.01, late.set_result, [6]).start()
        assert await results.of(late) == 6
        assert loop.woken == 2

    run(work())


def test_every_result_of_a_fast_thread_arrives() -> None:
    async def work() -> None:
        results = LoopResults(asyncio.get_running_loop())
        futures: list[Future[int]] = [Future() for _ in range(3000)]
        waiting = [results.of(future) for future in futures]

        def finish() -> None:
            for number, future in enumerate(futures):
                future.set_result(number)

        thread = threading.Thread(target=finish)
        thread.start()
        assert await asyncio.gather(*waiting) == [*range(3000)]
        thread.join()

    run(work())


def test_a_request_that_is_cancelled_is_cancelled_in_the_thread() -> None:
    async def work() -> None:
        results = LoopResults(asyncio.get_running_loop())
        future: Future[int] = Future()
        task = asyncio.ensure_future(results.of(future))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert future.cancelled()
        assert await results.of(done()) == 7

    def done() -> Future[int]:
        future: Future[int] = Future()
        future.set_result(7)
        return future

    run(work())
