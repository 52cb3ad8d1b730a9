"""The pace of requests, against simulated servers on a simulated clock."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

import pytest

from sweet.llm.concurrency import MIN_HEDGE_SECONDS, MIN_HEDGES, MIN_LATENCY_SAMPLES, AdaptiveLimiter

Service = Callable[[float, int], tuple[float, bool]]
"""(now, requests in service with this one) -> (when it answers, whether that is an answer)"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(limiter: AdaptiveLimiter, clock: Clock, service: Service, requests: int, at_once: int) -> list[int]:
    """Play requests, `at_once` of them waiting or under way at any time; the limit after each."""
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


def test_it_grows_to_the_ceiling_where_the_servers_have_room() -> None:
    dice, clock = random.Random(0), Clock()
    limiter = AdaptiveLimiter(1000, clock=clock)
    limits = simulate(limiter, clock, lambda now, _: (now + dice.lognormvariate(-2, 1), True), 20_000, 1000)
    assert limits[0] == 128
    assert limits[-1] == 1000
    assert limits.index(1000) < 6000


def test_it_stays_where_more_bring_no_more() -> None:
    """A server that works on 100 at once: all beyond wait in it, and take longer."""
    dice, clock = random.Random(0), Clock()
    free = [0.0] * 100

    def service(now: float, _under_way: int) -> tuple[float, bool]:
        when = max(now, heapq.heappop(free)) + dice.uniform(0.15, 0.25)
        heapq.heappush(free, when)
        return when, True

    limiter = AdaptiveLimiter(2000, start=16, clock=clock)
    limits = simulate(limiter, clock, service, 30_000, 2000)
    assert 80 < sorted(limits[5000:])[len(limits[5000:]) // 2] < 400


def test_refusals_shrink_it_and_it_recovers() -> None:
    """For a while the server takes no more than 40 at once."""
    clock = Clock()
    limiter = AdaptiveLimiter(200, clock=clock)
    dice = random.Random(0)

    def service(now: float, in_flight: int) -> tuple[float, bool]:
        good = now > 30 or in_flight <= 40
        return now + dice.uniform(0.15, 0.25), good

    limits = simulate(limiter, clock, service, 30_000, 200)
    assert min(limits) <= 60
    assert limits[-1] == 200


def test_a_few_failures_by_chance_do_not_shrink_it() -> None:
    dice, clock = random.Random(0), Clock()
    limiter = AdaptiveLimiter(400, clock=clock)
    limits = simulate(limiter, clock, lambda now, _: (now + 0.2, dice.random() > 0.08), 20_000, 400)
    assert limits[-1] == 400


def test_the_ceiling_can_be_moved_and_nobody_loses_a_place() -> None:
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
        assert not third.done(), "one is still under way"
        limiter.on_ignored()
        await third
        assert limiter.in_flight == 1

    asyncio.run(run())


def test_one_cancelled_as_it_is_admitted_gives_its_place_on() -> None:
    async def run() -> None:
        limiter = AdaptiveLimiter(1)
        await limiter.acquire()
        first, second = asyncio.create_task(limiter.acquire()), asyncio.create_task(limiter.acquire())
        await asyncio.sleep(0)
        limiter.on_ignored()
        first.cancel()
        await asyncio.wait([first, second], timeout=5)
        assert (first.cancelled(), second.done(), limiter.in_flight) == (True, True, 1)

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "patience"), [(0.001, MIN_HEDGE_SECONDS), (7.0, 7.0)])
def test_patience_is_what_nearly_all_answers_need(seconds: float, patience: float) -> None:
    async def run() -> None:
        limiter = AdaptiveLimiter(10)
        for number in range(2 * MIN_LATENCY_SAMPLES):
            assert (limiter.hedge_after() is None) == (number < MIN_LATENCY_SAMPLES)
            await limiter.acquire()
            limiter.on_success(seconds)
        assert limiter.hedge_after() == patience
        for _ in range(100):
            limiter.count_hedge()
        assert limiter.hedge_after() is None, "few are sent twice"

    asyncio.run(run())
    assert MIN_HEDGES < 100
