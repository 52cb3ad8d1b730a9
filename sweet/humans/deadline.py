"""The deadline of a dialogue, whose clock is stopped while the dialogue waits for a browser.

Rendering has its own limit in seconds a page. The time that a page waits for a free browser depends on the other
dialogues: with a hundred of them it is most of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

_CLOCK: ContextVar[asyncio.Timeout | None] = ContextVar("_CLOCK", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds`, not counting the time spent in `off_the_clock`.

    Raises:
        TimeoutError: the block took longer.
    """
    async with asyncio.timeout(seconds) as clock:
        token = _CLOCK.set(clock)
        try:
            yield
        finally:
            _CLOCK.reset(token)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop the clock of the enclosing deadline, if there is one, for the duration of the block."""
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
