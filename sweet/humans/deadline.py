"""A dialogue's deadline, whose clock stands still while the dialogue waits for a browser.

Browsers have a limit of their own, so many seconds a page. How long a page waits for one says nothing about its
dialogue: with a hundred dialogues under way it is the greater part of all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

_CLOCK: ContextVar[asyncio.Timeout | None] = ContextVar("_CLOCK", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """End the block after so many seconds, those `off_the_clock` aside.

    Raises:
        TimeoutError: it was not done by then.
    """
    async with asyncio.timeout(seconds) as clock:
        token = _CLOCK.set(clock)
        try:
            yield
        finally:
            _CLOCK.reset(token)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Time in this block does not count for the deadline around it, if there is one."""
    clock = _CLOCK.get()
    ends = None if clock is None else clock.when()
    if clock is None or ends is None or clock.expired():
        yield
        return
    loop = asyncio.get_running_loop()
    left = ends - loop.time()
    clock.reschedule(None)
    try:
        yield
    finally:
        clock.reschedule(loop.time() + left)
