"""An adaptive limit of the requests that a client has under way.

The limit begins at its upper bound, which the stage sets and may change at any time. Each dropped request (429, 5xx, no
response) lowers it, and each response raises it by a fifth of that: it shrinks while servers drop more than one request
in six, and grows again when they do not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

DECREASE, INCREASE = 0.5, 0.1
"""What a dropped request takes from the limit, and a response adds to it."""
HEADROOM = 16
"""How far above its upper bound the limit is counted, so that the few requests that healthy servers drop by chance do
not lower it."""

LARGE = 20_000
"""Characters or bytes whose work would keep the other tasks of the event loop waiting."""

T = TypeVar("T")


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work` on this many characters or bytes, which is done in a thread if these are many."""
    return await asyncio.to_thread(work) if size > LARGE else work()


class AdaptiveLimiter:
    """The limit of one client. Belongs to one event loop.

    Args:
        max_limit: upper bound of the limit, at least 1.
    """

    def __init__(self, max_limit: int) -> None:
        self._max_limit = max(1, max_limit)
        self._limit = float(self._max_limit + HEADROOM)
        self.in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """Requests that may be under way."""
        return min(int(self._limit), self._max_limit)

    @property
    def max_limit(self) -> int:
        """The upper bound of the limit."""
        return self._max_limit

    @max_limit.setter
    def max_limit(self, value: int) -> None:
        grown = max(1, value) - self._max_limit
        self._max_limit += grown
        self._adjust(max(0, grown))

    async def acquire(self) -> None:
        """Wait until a request may be sent. Each call must be followed by one of `release`."""
        if self.in_flight < self.limit and not self._waiting:
            self.in_flight += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self, *, dropped: bool | None = None) -> None:
        """Let another request be sent.

        Args:
            dropped: whether the server dropped the request; None if its result says nothing about the server's load.
        """
        self.in_flight -= 1
        self._adjust(0 if dropped is None else -DECREASE if dropped else INCREASE)

    def _adjust(self, change: float) -> None:
        self._limit = min(max(1.0, self._limit + change), float(self._max_limit + HEADROOM))
        while self._waiting and self.in_flight < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
