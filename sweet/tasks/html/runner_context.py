"""Opens an asynchronous context for code that is not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def entered(runner: asyncio.Runner, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter a context in the runner's loop, and leave it at the end, in the same asyncio task, as pools of browsers
    require. Its value can be used in what the runner runs meanwhile."""
    closing = asyncio.Event()
    opened: asyncio.Future[T] = runner.get_loop().create_future()

    async def keep_open() -> None:
        async with context as value:
            opened.set_result(value)
            await closing.wait()

    async def enter() -> tuple[asyncio.Task[None], T]:
        task = asyncio.create_task(keep_open())
        either: set[asyncio.Future[Any]] = {task, opened}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await task
        return task, opened.result()

    task, value = runner.run(enter())
    try:
        yield value
    finally:
        closing.set()
        runner.run(_await(task))


async def _await(task: asyncio.Task[None]) -> None:
    await task
