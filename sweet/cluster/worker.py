"""The actors that run on the nodes and process chunks of items.

One thread opens the work, runs it and closes it; Ray's threads deliver chunks and wait for their results.

A `Worker` is for work that consumes a stream of items. As long as chunks keep arriving, the stream continues across
chunk borders, so that a scorer that runs many answers in parallel does not wait for the last answer of a chunk. When no
chunk is waiting, the stream ends, all pending results are flushed, and only then does the thread wait for the next
chunk: a generator may yield a result only when it is asked for the one after it. An `AsyncWorker` is for work that
processes each item separately, in any order.

Errors are returned as a `Fault`, not raised, because our exception classes may not survive pickling between machines.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from sweet.errors import SweetError, described
from sweet.installation import VERSION

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Work(Protocol[Item_contra, Result_co]):
    """Work on a node that consumes a stream of items.

    Attributes:
        info: what the scheduler and its callers need to know about it before any item is processed.
    """

    @property
    def info(self) -> Mapping[str, Any]: ...

    def results(self, items: Iterable[Item_contra]) -> Iterator[Result_co]:
        """Yield the result of each item in order. Items are consumed lazily."""
        ...


class AsyncWork(Protocol[Item_contra, Result_co]):
    """Work on a node that processes any number of items concurrently. `info` as for `Work`."""

    @property
    def info(self) -> Mapping[str, Any]: ...

    async def result(self, item: Item_contra, /) -> Result_co: ...


WorkFactory = Callable[[int], AbstractContextManager[Work[Item, Result]]]
"""Opens the work on a node, given the number of cores it may use. Sent to the node by pickle."""

AsyncWorkFactory = Callable[[int], AbstractAsyncContextManager[AsyncWork[Item, Result]]]


@dataclass(frozen=True)
class Fault:
    """An error that is sent from one machine to another.

    Attributes:
        lost: the worker is lost, and a new one may succeed. Otherwise the error concerns the request itself, and would
            occur again.
    """

    what: str
    where: str | None = None
    fix: str | None = None
    lost: bool = False

    @classmethod
    def of(cls, error: BaseException, *, lost: bool = False) -> Fault:
        """The fault that describes an exception."""
        if isinstance(error, SweetError):
            return cls(error.what, error.where, error.fix, lost)
        return cls(described(error), lost=lost)


@dataclass(frozen=True)
class Ready:
    """Reported by a worker once its work is open: the version of sweet, and `Work.info`."""

    version: str
    info: Mapping[str, Any]


class _Chunk(Generic[Item, Result]):
    """Items that arrived together, and their results so far."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.results: list[Result] = []
        self.done = threading.Event()

    def add(self, result: Result) -> None:
        self.results.append(result)
        if len(self.results) == len(self.items):
            self.done.set()


class Worker(Generic[Item, Result]):
    """The actor for streaming work. Several threads call its methods concurrently.

    Args:
        factory: opens the work.
        cores: the cores of the node that this worker may use.
    """

    def __init__(self, factory: WorkFactory[Item, Result], cores: int) -> None:
        self._factory, self._cores = factory, cores
        self._queue: SimpleQueue[_Chunk[Item, Result]] = SimpleQueue()
        self._opened = threading.Event()
        self._ready: Ready | None = None
        self._fault: Fault | None = None
        self._pending: set[_Chunk[Item, Result]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True, name="worker").start()

    def wait_ready(self) -> Ready | Fault:
        """Wait until the work is open or has failed to open."""
        self._opened.wait()
        return self._fault or self._ready or Fault("the worker was closed")

    def results(self, items: Sequence[Item]) -> list[Result] | Fault:
        """Process a chunk of at least one item and return one result for each."""
        chunk: _Chunk[Item, Result] = _Chunk(items)
        with self._lock:
            if self._fault is not None:
                return self._fault
            self._pending.add(chunk)
        self._queue.put(chunk)
        chunk.done.wait()
        with self._lock:
            self._pending.discard(chunk)
        complete = len(chunk.results) == len(items)
        return chunk.results if complete or self._fault is None else self._fault

    def _run(self) -> None:
        try:
            with self._factory(self._cores) as work:
                self._ready = Ready(VERSION, work.info)
                self._opened.set()
                while True:
                    self._process(work, self._queue.get())
        except BaseException as error:
            with self._lock:
                self._fault = Fault.of(error, lost=self._ready is not None)
                broken = list(self._pending)
            self._opened.set()
            for chunk in broken:
                chunk.done.set()

    def _process(self, work: Work[Item, Result], first: _Chunk[Item, Result]) -> None:
        """Process chunks, from `first` on, until none is waiting."""
        owners: deque[_Chunk[Item, Result]] = deque()  # the chunk of each item whose result is pending

        def stream() -> Iterator[Item]:
            chunk: _Chunk[Item, Result] | None = first
            while chunk is not None:
                for item in chunk.items:
                    owners.append(chunk)
                    yield item
                try:
                    chunk = self._queue.get_nowait()
                except Empty:
                    chunk = None

        for result in work.results(stream()):
            owners.popleft().add(result)


class AsyncWorker(Generic[Item, Result]):
    """The actor for work that processes each item separately. Several threads call its methods concurrently."""

    def __init__(self, factory: AsyncWorkFactory[Item, Result], cores: int) -> None:
        self._factory, self._cores = factory, cores
        self._work: Future[AsyncWork[Item, Result]] = Future()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True, name="worker").start()

    def wait_ready(self) -> Ready | Fault:
        """Wait until the work is open or has failed to open."""
        try:
            return Ready(VERSION, self._work.result().info)
        except BaseException as error:
            return Fault.of(error)

    def results(self, items: Sequence[Item]) -> list[Result] | Fault:
        """Process a chunk and return one result for each item."""
        work = self._work.result()

        async def gather() -> list[Result]:
            return await asyncio.gather(*map(work.result, items))

        try:
            return asyncio.run_coroutine_threadsafe(gather(), self._loop).result()
        except BaseException as error:
            return Fault.of(error)

    async def _run(self) -> None:
        try:
            async with self._factory(self._cores) as work:
                self._work.set_result(work)
                await asyncio.Event().wait()
        except BaseException as error:
            self._work.set_exception(error)
