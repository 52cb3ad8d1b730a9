"""One call for what many tasks of an event loop ask at the same time; and coroutines that run together.

A call is started as soon as there is room for it (`max_calls`), with all items that wait then, at most `batch_size`. So
no item waits for a batch to become full, and while calls run the next batch gathers. Of the errors of coroutines that
run together (`run_all`) one is shown. `run_main` runs the coroutine of a command; `stop_signal` ends that of a server;
`until` waits for the first of two; `opened_in_thread` opens something for code outside of event loops.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
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
def handling(actions: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Answer signals by actions during the block, if this is the main thread; only that one receives signals. A SIGHUP
    that is ignored stays so (nohup)."""
    loop, before = asyncio.get_running_loop(), {}
    for number in actions if threading.current_thread() is threading.main_thread() else ():
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.getsignal(number)
            loop.add_signal_handler(number, actions[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextmanager
def stop_signal() -> Iterator[asyncio.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    with handling({signal.SIGINT: stop.set, signal.SIGTERM: stop.set}):
        yield stop


@contextmanager
def opened_in_thread(opening: AbstractAsyncContextManager[T]) -> Iterator[tuple[T, asyncio.AbstractEventLoop]]:
    """Open something in an event loop of its own, which runs in another thread for the duration of the block; yield it
    and the loop. Raises what the opening or the closing raises."""
    opened, ended = Future[T](), Future[None]()
    closing, loop = asyncio.Event(), asyncio.new_event_loop()

    async def hold() -> None:
        async with opening as found:
            opened.set_result(found)
            await closing.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                ended.set_result(runner.run(hold()))
        except BaseException as error:
            (ended if opened.done() else opened).set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield opened.result(), loop
    finally:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(closing.set)
        thread.join()
    ended.result()


async def until(end: asyncio.Future[Any], work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns; None if `end` is done before, which cancels the work."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()


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
