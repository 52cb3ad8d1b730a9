"""Time limits that count from the last progress.

That of a dialogue, for each reply: its clock begins anew with every reply (`restart_clock`), and when it has waited for
what works for all dialogues together. This machine's browsers and models have limits of their own (`off_the_clock`).
A server that answers one request after the other lets the others wait for minutes, as long as it answers any
(`counted_from`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from time import monotonic

Progress = Callable[[], float]
"""When there was progress last, by the monotonic clock, which is that of the event loop; 0 if there was none."""


class _Clock:
    """Lets a timeout expire when there was no progress for `seconds`. Its time is looked at when it would be over."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float, *progress: Progress) -> None:
        self.timeout, self.seconds, self.progress = timeout, seconds, [*progress]
        self.since = monotonic()
        self.timer = asyncio.get_running_loop().call_at(self.since + seconds, self.look)

    def look(self) -> None:
        ends = max(self.since, *(last() for last in self.progress), 0.0) + self.seconds
        if ends > monotonic():
            self.timer = asyncio.get_running_loop().call_at(ends, self.look)
        else:
            self.timeout.reschedule(ends)


_CLOCK: ContextVar[_Clock | None] = ContextVar("_CLOCK", default=None)


@asynccontextmanager
async def deadline(seconds: float, *progress: Progress) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block `seconds` after its beginning, the last `restart_clock`, or the last progress.

    Raises:
        TimeoutError: the block took longer.
    """
    async with asyncio.timeout(None) as timeout:
        clock = _Clock(timeout, seconds, *progress)
        token = _CLOCK.set(clock)
        try:
            yield timeout
        finally:
            clock.timer.cancel()
            _CLOCK.reset(token)


def restart_clock() -> None:
    """Give the enclosing deadline, if there is one, its whole time again."""
    if (clock := _CLOCK.get()) is not None:
        clock.since = monotonic()


@contextmanager
def counted_from(progress: Progress) -> Iterator[None]:
    """Let the enclosing deadline, if there is one, count from this progress too, of what the block waits for."""
    if (clock := _CLOCK.get()) is None:
        yield
        return
    clock.progress.append(progress)
    try:
        yield
    finally:
        clock.progress.remove(progress)
        clock.since = max(clock.since, progress())


def off_the_clock() -> AbstractContextManager[None]:
    """Stop the clock of the enclosing deadline, if there is one, within the block, after which it begins anew."""
    return counted_from(monotonic)
