"""Results that another thread computes, for the coroutines of an event loop.

`asyncio.wrap_future` wakes the loop once for each result, by a system call in the thread that computes. An engine
finishes several replies in a step: here those that the loop has not seen yet wake it once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopResults:
    """Waits in one event loop for futures of other threads.

    Args:
        loop: the loop, in which `of` is called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[tuple[Future[Any], asyncio.Future[Any]]] = deque()

    def of(self, future: Future[T]) -> asyncio.Future[T]:
        """Return a future of the loop with the result or the exception; as `future` itself, it is cancelled when the
        other one is."""
        waiting: asyncio.Future[T] = self.loop.create_future()
        waiting.add_done_callback(lambda _: future.cancel() if waiting.cancelled() else None)
        future.add_done_callback(lambda _: self._finished(future, waiting))
        return waiting

    def _finished(self, future: Future[Any], waiting: asyncio.Future[Any]) -> None:
        """Called in the thread that computes."""
        self._done.append((future, waiting))
        # With others before it, the loop has been woken and not yet taken them all.
        if len(self._done) == 1 and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._done:
            future, waiting = self._done[0]
            if not waiting.done():
                if future.cancelled():
                    waiting.cancel()
                elif (error := future.exception()) is not None:
                    waiting.set_exception(error)
                else:
                    waiting.set_result(future.result())
            self._done.popleft()
