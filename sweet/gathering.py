"""One call for what many tasks of an event loop ask at the same time; and coroutines that run together.

A call is started as soon as there is room for it (`max_calls`), with all items that wait then, at most `batch_size`. So
no item waits for a batch to become full, and while calls run the next batch gathers. Of the errors of coroutines that
run together (`run_all`) one is shown. `run_main` runs the coroutine of a command; `stop_signal` ends that of a server.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from sweet.errors import SweetError

T = TypeVar("T")
R = TypeVar("R")


def run_main(work: Coroutine[Any, Any, T]) -> T:
    """Run an event loop, as `asyncio.run`, for a coroutine that may cancel itself at a signal.

    Raises:
        KeyboardInterrupt: a further signal came while it was closing what it had opened. `asyncio.run` raises this only
            where no one else has ever cancelled the coroutine, and else the bare cancellation.
    """
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def stop_signal() -> Iterator[asyncio.Event]:
    """Yield an event that SIGINT and SIGTERM set, if this is the main thread; only that one receives signals."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class Gathering(Generic[T, R]):
    """Passes single items to a function of several.

    Args:
        call: returns a result for each item, in order.
        batch_size: items of a call at most; None for all that wait.
        max_calls: calls at the same time at most.
    """

    def __init__(
        self, call: Callable[[list[T]], Awaitable[Sequence[R]]], *, batch_size: int | None = None, max_calls: int = 1
    ) -> None:
        self._call, self._batch_size, self._max_calls = call, batch_size, max_calls
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself refers to tasks only weakly

    async def submit(self, item: T) -> R:
        """Return the result of an item. Raises what the call with it raised."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if len(self._tasks) < self._max_calls:
            task = asyncio.create_task(self._call_until_none_waits())
            self._tasks.add(task)
        return await result

    async def aclose(self) -> None:
        """Wait until no call runs."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call_until_none_waits(self) -> None:
        try:
            while batch := list(self._next_batch()):
                try:
                    results = await self._call([item for item, _ in batch])
                except Exception as error:  # whoever waits for it handles it
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (_, future), result in zip(batch, results, strict=True):
                        if not future.done():
                            future.set_result(result)
        finally:  # before anything else runs, so that an item that comes now starts another task
            task = asyncio.current_task()
            assert task is not None
            self._tasks.discard(task)

    def _next_batch(self) -> Iterator[tuple[T, asyncio.Future[R]]]:
        """Take the items that wait, without those for which nobody waits any more."""
        taken = 0
        while self._waiting and (self._batch_size is None or taken < self._batch_size):
            item, future = self._waiting.popleft()
            if not future.done():
                taken += 1
                yield item, future


async def run_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the coroutines and return their results, in order; if one raises, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise first_cause(errors) from errors
    return [task.result() for task in tasks]


def first_cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group to show: the first one for the user (SweetError), else the first."""
    leaves = [first_cause(e) if isinstance(e, BaseExceptionGroup) else e for e in errors.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, SweetError)), leaves[0])
