"""The adaptive concurrency limit, against simulated servers on a simulated clock."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

import pytest

from sweet.llm.concurrency import MIN_HEDGE_SECONDS, MIN_HEDGES, MIN_LATENCY_SAMPLES, AdaptiveLimiter

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
        if await answer:
            limiter.on_success(clock.now - began)
        else:
            limiter.on_dropped()
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


def test_the_limit_grows_to_its_maximum_if_the_servers_have_capacity() -> None:
    dice, clock = random.Random(0), Clock()
    limiter = AdaptiveLimiter(1000, clock=clock)
    limits = simulate(limiter, clock, lambda now, _: (now + dice.lognormvariate(-2, 1), True), 20_000, 1000)
    assert limits[0] == 128
    assert limits[-1] == 1000
    assert limits.index(1000) < 6000


def test_the_limit_stays_where_throughput_no_longer_grows() -> None:
    """A server that processes 100 requests in parallel: all others queue, and take longer."""
    dice, clock = random.Random(0), Clock()
    free = [0.0] * 100

    def service(now: float, _under_way: int) -> tuple[float, bool]:
        when = max(now, heapq.heappop(free)) + dice.uniform(0.15, 0.25)
        heapq.heappush(free, when)
        return when, True

    limiter = AdaptiveLimiter(2000, start=16, clock=clock)
    limits = simulate(limiter, clock, service, 30_000, 2000)
    assert 80 < sorted(limits[5000:])[len(limits[5000:]) // 2] < 400


def test_the_limit_shrinks_on_dropped_requests_and_recovers() -> None:
    """For a while the server accepts no more than 40 concurrent requests."""
    clock = Clock()
    limiter = AdaptiveLimiter(200, clock=clock)
    dice = random.Random(0)

    def service(now: float, in_flight: int) -> tuple[float, bool]:
        good = now > 30 or in_flight <= 40
        return now + dice.uniform(0.15, 0.25), good

    limits = simulate(limiter, clock, service, 30_000, 200)
    assert min(limits) <= 60
    assert limits[-1] == 200


def test_a_few_random_failures_do_not_shrink_the_limit() -> None:
    dice, clock = random.Random(0), Clock()
    limiter = AdaptiveLimiter(400, clock=clock)
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
        limiter.max_limit = 5
        limiter.limit = 2
        limiter.on_ignored()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True] * 3
        assert limiter.in_flight == 2
        limiter.max_limit = 1
        assert limiter.limit == 1
        limiter.on_ignored()
        third = asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        assert not third.done(), "one is still in flight"
        limiter.on_ignored()
        await third
        assert limiter.in_flight == 1

    asyncio.run(run())


def test_a_request_cancelled_on_admission_is_released() -> None:
    async def run() -> None:
        limiter = AdaptiveLimiter(1)
        await limiter.acquire()
        first, second = asyncio.create_task(limiter.acquire()), asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        limiter.on_ignored()
        first.cancel()
        await asyncio.wait([first, second], timeout=60)
        assert (first.cancelled(), second.done(), limiter.in_flight) == (True, True, 1)

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "hedge_after"), [(0.001, MIN_HEDGE_SECONDS), (7.0, 7.0)])
def test_hedging_waits_for_the_99th_percentile(seconds: float, hedge_after: float) -> None:
    async def run() -> None:
        limiter = AdaptiveLimiter(10)
        for number in range(2 * MIN_LATENCY_SAMPLES):
            assert (limiter.hedge_after() is None) == (number < MIN_LATENCY_SAMPLES)
            await limiter.acquire()
            limiter.on_success(seconds)
        assert limiter.hedge_after() == hedge_after
        for _ in range(100):
            limiter.count_hedge()
        assert limiter.hedge_after() is None, "few are sent twice"

    asyncio.run(run())
    assert MIN_HEDGES < 100
