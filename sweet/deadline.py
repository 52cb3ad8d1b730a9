"""Time limits that count from the last progress.

That of a dialogue, for each reply: its clock begins anew with every reply (`restart_clock`), and is stopped while this
machine works for all dialogues together (`off_the_clock`), in browsers and models, which says nothing of the one and
has limits of its own. A server that answers one request after the other lets the others wait for minutes: as long as it
answers any, the clocks of all that wait for it begin anew (`counted_from`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

Progress = Callable[[], float]
"""When there was progress last, by the clock of the event loop; 0 if there was none."""


class _Clock:
    """Lets a timeout expire when there was no progress for `seconds`. Its time is looked at when it would be over."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float, *progress: Progress) -> None:
        self.timeout, self.seconds, self.progress = timeout, seconds, [*progress]
        self.since = asyncio.get_running_loop().time()
        self.timer: asyncio.TimerHandle | None = None
        self.run()

    def run(self) -> None:
        loop = asyncio.get_running_loop()
        ends = max(self.since, *(last() for last in self.progress), 0.0) + self.seconds
        self.timer = loop.call_at(ends, self.run) if ends > loop.time() else None
        if self.timer is None:
            self.timeout.reschedule(loop.time())

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


_CLOCK: ContextVar[_Clock | None] = ContextVar("_CLOCK", default=None)


@asynccontextmanager
async def deadline(seconds: float, *progress: Progress) -> AsyncIterator[asyncio.Timeout]:
    """Cancel the block `seconds` after its beginning, the last `restart_clock` or the last progress, not counting the
    time spent in `off_the_clock`.

    Raises:
        TimeoutError: the block took longer.
    """
    async with asyncio.timeout(None) as timeout:
        clock = _Clock(timeout, seconds, *progress)
        token = _CLOCK.set(clock)
        try:
            yield timeout
        finally:
            clock.stop()
            _CLOCK.reset(token)


def restart_clock() -> None:
    """Give the enclosing deadline, if there is one, its whole time again. Has no effect in `off_the_clock`."""
    if (clock := _CLOCK.get()) is not None and clock.timer is not None:
        clock.since = asyncio.get_running_loop().time()


@contextmanager
def counted_from(progress: Progress) -> Iterator[None]:
    """Let the enclosing deadline, if there is one, count from this progress too, for the duration of the block."""
    if (clock := _CLOCK.get()) is None:
        yield
        return
    clock.progress.append(progress)
    try:
        yield
    finally:
        clock.progress.remove(progress)
        clock.since = max(clock.since, progress())


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop the clock of the enclosing deadline, if there is one, for the duration of the block."""
    if (clock := _CLOCK.get()) is None or clock.timer is None:
        yield
        return
    loop = asyncio.get_running_loop()
    began = loop.time()
    clock.stop()
    try:
        yield
    finally:
        clock.since += loop.time() - began
        clock.run()
