"""Leaks are looked for in another process, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from sweet.humans.leaks import process
from sweet.tasks.base import Message

REFERENCE = """\
def fee(hours, rate):
    total = hours * rate
    if hours > 8:
        total += (hours - 8) * rate * 0.5
    return round(total, 2)
"""
REQUEST = "I need a function fee(hours, rate)."
DIALOGUE = [Message(role="user", content=REQUEST), Message(role="assistant", content="What about overtime?")]
HONEST = "Overtime is from eight hours on, and is paid half as much again."


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[process._Pool]:
    monkeypatch.setattr(process, "INLINE_SECONDS", 0.0)
    monkeypatch.setattr(process, "_pool", process._Pool())
    yield process._pool
    process._pool.close()


async def search(reply: str) -> bool:
    return await process.search(REFERENCE, REQUEST, DIALOGUE, reply)


def test_a_worker_finds_what_is_found_here(pool: process._Pool) -> None:
    async def both() -> list[bool]:
        return list(await asyncio.gather(search(REFERENCE), search(HONEST)))

    assert asyncio.run(both()) == [True, False]
    assert pool.worker(REFERENCE)._process is not None, "another process did it"


def test_a_worker_that_was_killed_is_replaced(pool: process._Pool) -> None:
    async def work() -> None:
        assert not await search(HONEST)
        first = pool.worker(REFERENCE)._process
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert await search(REFERENCE)
        assert await search(REFERENCE)
        second = pool.worker(REFERENCE)._process
        assert second is not None
        assert second.pid != first.pid

    asyncio.run(work())


def test_few_searches_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_pool", process._Pool())
    assert asyncio.run(search(REFERENCE))
    assert process._pool._workers == []
    assert process._pool.spent > 0
