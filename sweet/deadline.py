"""The deadline of a dialogue for each reply.

Its clock begins anew with every reply (`restart_clock`). It is stopped while this machine works for all dialogues
together (`off_the_clock`), in browsers and models, which says nothing of the one and has limits of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

_CLOCK: ContextVar[tuple[asyncio.Timeout, float] | None] = ContextVar("_CLOCK", default=None)


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Cancel the block `seconds` after its beginning or the last `restart_clock`, not counting the time spent in
    `off_the_clock`.

    Raises:
        TimeoutError: the block took longer.
    """
    async with asyncio.timeout(seconds) as clock:
        token = _CLOCK.set((clock, seconds))
        try:
            yield
        finally:
            _CLOCK.reset(token)


def restart_clock() -> None:
    """Give the enclosing deadline, if there is one, its whole time again. Has no effect in `off_the_clock`."""
    clock, seconds = _CLOCK.get() or (None, 0.0)
    if clock is not None and clock.when() is not None and not clock.expired():
        clock.reschedule(asyncio.get_running_loop().time() + seconds)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop the clock of the enclosing deadline, if there is one, for the duration of the block."""
    clock, _ = _CLOCK.get() or (None, 0.0)
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
