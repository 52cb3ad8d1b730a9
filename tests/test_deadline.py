"""A dialogue's deadline and the time that does not count for it."""

from __future__ import annotations

import asyncio

import pytest

from sweet.deadline import counted_from, deadline, off_the_clock, restart_clock


def test_waiting_for_a_browser_does_not_count() -> None:
    async def work() -> None:
        async with deadline(1.0):  # a busy machine takes some of it
            for _ in range(3):
                with off_the_clock():
                    await asyncio.sleep(0.5)

    asyncio.run(work())


@pytest.mark.parametrize("begins", [False, True])
def test_all_other_time_counts(begins: bool) -> None:
    async def work() -> None:
        async with deadline(0.2):
            if begins:
                await asyncio.sleep(0.5)
            with off_the_clock(), off_the_clock():
                await asyncio.sleep(0.4)
            await asyncio.sleep(0.5)

    with pytest.raises(TimeoutError):
        asyncio.run(work())


def test_a_reply_gives_the_whole_time_again() -> None:
    async def work(replies: int) -> None:
        async with deadline(0.5):
            for _ in range(replies):
                await asyncio.sleep(0.3)
                restart_clock()
            with off_the_clock():
                restart_clock()
            await asyncio.sleep(0.7 if replies == 1 else 0.0)

    asyncio.run(work(4))
    with pytest.raises(TimeoutError):
        asyncio.run(work(1))


def test_time_counts_from_the_last_progress_of_what_is_waited_for() -> None:
    async def work(*, answers: bool) -> str:
        loop = asyncio.get_running_loop()
        last = 0.0
        async with deadline(1.0), asyncio.timeout(20):
            with counted_from(lambda: last):
                for _ in range(4):
                    await asyncio.sleep(0.5)
                    last = loop.time() if answers else 0.0
            await asyncio.sleep(0.5)
        return "done"

    assert asyncio.run(work(answers=True)) == "done"
    with pytest.raises(TimeoutError):
        asyncio.run(work(answers=False))


def test_what_was_waited_for_has_no_effect_afterwards() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with deadline(0.3):
            with counted_from(lambda: loop.time() - 0.1):
                await asyncio.sleep(0.4)
            await asyncio.sleep(0.8)

    with pytest.raises(TimeoutError):
        asyncio.run(work())


def test_without_a_deadline_nothing_is_counted() -> None:
    async def work() -> str:
        with off_the_clock(), counted_from(lambda: 1.0):
            return "done"

    assert asyncio.run(work()) == "done"


def test_no_time_at_all_is_a_time_that_is_over() -> None:
    async def work() -> None:
        async with deadline(1e-12):
            await asyncio.sleep(5)

    with pytest.raises(TimeoutError):
        asyncio.run(work())


def test_a_task_can_be_cancelled_off_the_clock() -> None:
    async def work() -> None:
        async with deadline(60):
            with off_the_clock():
                await asyncio.sleep(60)

    async def stopped() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stopped())
