"""The adaptive concurrency limit, against simulated servers on a simulated clock."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

from sweet.llm.concurrency import AdaptiveLimiter

Service = Callable[[float, int], tuple[float, bool]]
"""(now, requests in service including this one) -> (when it responds, whether it succeeds)"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(limiter: AdaptiveLimiter, clock: Clock, service: Service, requests: int, at_once: int) -> list[int]:
    """Simulate requests, `at_once` of them waiting or in flight at any time; return the limit after each."""
    limits: list[int] = []
    due: list[tuple[float, int, asyncio.Future[bool], bool]] = []
    numbers = iter(range(10**9))

    async def one() -> None:
        await limiter.acquire()
        began = clock.now
        when, good = service(began, limiter.in_flight)
        answer = asyncio.get_running_loop().create_future()
        heapq.heappush(due, (when, next(numbers), answer, good))
        limiter.release(dropped=not await answer)
        limits.append(limiter.limit)

    async def run() -> None:
        begun, tasks = 0, set[asyncio.Task[None]]()
        while begun < requests or tasks:
            while begun < requests and len(tasks) < at_once:
                task = asyncio.create_task(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                begun += 1
            for _ in range(3):
                await asyncio.sleep(0)
            if due:
                clock.now, _, answer, good = heapq.heappop(due)
                answer.set_result(good)
                for _ in range(3):
                    await asyncio.sleep(0)

    asyncio.run(run())
    return limits


def test_the_limit_shrinks_on_dropped_requests_and_recovers() -> None:
    """For a while the server accepts no more than 40 concurrent requests."""
    clock = Clock()
    limiter = AdaptiveLimiter(200)
    dice = random.Random(0)

    def service(now: float, in_flight: int) -> tuple[float, bool]:
        good = now > 30 or in_flight <= 40
        return now + dice.uniform(0.15, 0.25), good

    limits = simulate(limiter, clock, service, 30_000, 200)
    assert min(limits) <= 60
    assert limits[-1] == 200


def test_a_few_random_failures_do_not_shrink_the_limit() -> None:
    dice, clock = random.Random(0), Clock()
    limiter = AdaptiveLimiter(400)
    limits = simulate(limiter, clock, lambda now, _: (now + 0.2, dice.random() > 0.08), 20_000, 400)
    assert limits[-1] == 400


def test_the_maximum_can_change_while_requests_wait() -> None:
    async def run() -> None:
        limiter = AdaptiveLimiter(1)
        await limiter.acquire()
        waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        limiter.max_limit = 2
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True, True, False]
        limiter.release()
        await asyncio.sleep(0)
        assert waiting[2].done()
        assert limiter.in_flight == 2
        limiter.max_limit = 1
        assert limiter.limit == 1
        limiter.release()
        third = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        assert not third.done(), "one is still in flight"
        limiter.release()
        await third
        assert limiter.in_flight == 1

    asyncio.run(run())


def test_a_request_cancelled_on_admission_is_released() -> None:
    async def run() -> None:
        limiter = AdaptiveLimiter(1)
        await limiter.acquire()
        first, second = asyncio.create_task(limiter.acquire()), asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        limiter.release()
        first.cancel()
        await asyncio.wait([first, second], timeout=60)
        assert (first.cancelled(), second.done(), limiter.in_flight) == (True, True, 1)

    asyncio.run(run())
