"""The pace of requests, against simulated servers on a simulated clock."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

import pytest

from sweet.llm.concurrency import ENOUGH_SAMPLES, SHORTEST_WAIT, SPARE_LEAST, Pace

Service = Callable[[float, int], tuple[float, bool]]
"""(now, requests in service with this one) -> (when it answers, whether that is an answer)"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(pace: Pace, clock: Clock, service: Service, requests: int, at_once: int) -> list[int]:
    """Play requests, `at_once` of them waiting or under way at any time; the limit after each."""
    limits: list[int] = []
    due: list[tuple[float, int, asyncio.Future[bool], bool]] = []
    numbers = iter(range(10**9))

    async def one() -> None:
        await pace.enter()
        began = clock.now
        when, good = service(began, pace.under_way)
        answer = asyncio.get_running_loop().create_future()
        heapq.heappush(due, (when, next(numbers), answer, good))
        if await answer:
            pace.leave(clock.now - began)
        else:
            pace.refused()
        limits.append(pace.limit)

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
    pace = Pace(1000, clock=clock)
    limits = simulate(pace, clock, lambda now, _: (now + dice.lognormvariate(-2, 1), True), 20_000, 1000)
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

    pace = Pace(2000, start=16, clock=clock)
    limits = simulate(pace, clock, service, 30_000, 2000)
    assert 80 < sorted(limits[5000:])[len(limits[5000:]) // 2] < 400


def test_refusals_shrink_it_and_it_recovers() -> None:
    """For a while the server takes no more than 40 at once."""
    clock = Clock()
    pace = Pace(200, clock=clock)
    dice = random.Random(0)

    def service(now: float, under_way: int) -> tuple[float, bool]:
        good = now > 30 or under_way <= 40
        return now + dice.uniform(0.15, 0.25), good

    limits = simulate(pace, clock, service, 30_000, 200)
    assert min(limits) <= 60
    assert limits[-1] == 200


def test_a_few_failures_by_chance_do_not_shrink_it() -> None:
    dice, clock = random.Random(0), Clock()
    pace = Pace(400, clock=clock)
    limits = simulate(pace, clock, lambda now, _: (now + 0.2, dice.random() > 0.08), 20_000, 400)
    assert limits[-1] == 400


def test_the_ceiling_can_be_moved_and_nobody_loses_a_place() -> None:
    async def run() -> None:
        pace = Pace(1)
        await pace.enter()
        waiting = [asyncio.create_task(pace.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        pace.ceiling = 5
        pace.limit = 2
        pace.withdraw()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in waiting] == [True] * 3
        assert pace.under_way == 2
        pace.ceiling = 1
        assert pace.limit == 1
        pace.withdraw()
        third = asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        assert not third.done(), "one is still under way"
        pace.withdraw()
        await third
        assert pace.under_way == 1

    asyncio.run(run())


def test_one_cancelled_as_it_is_admitted_gives_its_place_on() -> None:
    async def run() -> None:
        pace = Pace(1)
        await pace.enter()
        first, second = asyncio.create_task(pace.enter()), asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        pace.withdraw()
        first.cancel()
        await asyncio.wait([first, second], timeout=5)
        assert (first.cancelled(), second.done(), pace.under_way) == (True, True, 1)

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "patience"), [(0.001, SHORTEST_WAIT), (7.0, 7.0)])
def test_patience_is_what_nearly_all_answers_need(seconds: float, patience: float) -> None:
    async def run() -> None:
        pace = Pace(10)
        for number in range(2 * ENOUGH_SAMPLES):
            assert (pace.patience() is None) == (number < ENOUGH_SAMPLES)
            await pace.enter()
            pace.leave(seconds)
        assert pace.patience() == patience
        for _ in range(100):
            pace.spare()
        assert pace.patience() is None, "few are sent twice"

    asyncio.run(run())
    assert SPARE_LEAST < 100
