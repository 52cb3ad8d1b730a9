"""What runs in an actor on a node: somebody at work, fed with chunks of items.

One thread opens what does the work, works, and closes it; Ray's threads bring chunks and wait for their results.

A `Bench` is for work that takes items as a stream. While chunks keep coming, work goes on through their borders, so
that a scorer that runs many answers at once need not wait for the last of a chunk. When there is no more, what is under
way is ended before the thread waits for the next chunk: a worker may give a result only when it is asked for the one
after it. An `AsyncBench` is for work that answers each item by itself, in any order.

Nothing is raised to the caller, because an error of ours may not survive the journey: a `Fault` is returned.
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

import sweet
from sweet.errors import SweetError, described

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Work(Protocol[Item_contra, Result_co]):
    """Who does the work on a node.

    Attributes:
        told: what the others want to know of it, before anything is done.
    """

    @property
    def told(self) -> Mapping[str, Any]: ...

    def results(self, items: Iterable[Item_contra]) -> Iterator[Result_co]:
        """The result of each item, in their order. Items are taken as they are needed."""
        ...


class AsyncWork(Protocol[Item_contra, Result_co]):
    """Who does the work on a node, any number of items at once."""

    @property
    def told(self) -> Mapping[str, Any]: ...

    async def result(self, item: Item_contra, /) -> Result_co: ...


Opening = Callable[[int], AbstractContextManager[Work[Item, Result]]]
"""Opens the work on a node, for so many of its cores; goes there by pickle."""

AsyncOpening = Callable[[int], AbstractAsyncContextManager[AsyncWork[Item, Result]]]


@dataclass(frozen=True)
class Fault:
    """An error, to be sent from one machine to another.

    Attributes:
        lost: the bench is lost, and another one may do better. Otherwise it concerns what was asked for, and would be
            told again.
    """

    what: str
    where: str | None = None
    fix: str | None = None
    lost: bool = False

    @classmethod
    def of(cls, error: BaseException, *, lost: bool = False) -> Fault:
        if isinstance(error, SweetError):
            return cls(error.what, error.where, error.fix, lost)
        return cls(described(error), lost=lost)


@dataclass(frozen=True)
class Hello:
    """What a bench says of itself when it is open."""

    version: str
    told: Mapping[str, Any]


class _Chunk(Generic[Item, Result]):
    """Items that came together, and their results so far."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.results: list[Result] = []
        self.over = threading.Event()

    def add(self, result: Result) -> None:
        self.results.append(result)
        if len(self.results) == len(self.items):
            self.over.set()


class Bench(Generic[Item, Result]):
    """The actor. Its methods are called by several threads at once.

    Args:
        cores: of the node, for this bench.
    """

    def __init__(self, opening: Opening[Item, Result], cores: int) -> None:
        self._opening, self._cores = opening, cores
        self._coming: SimpleQueue[_Chunk[Item, Result]] = SimpleQueue()
        self._open = threading.Event()
        self._hello: Hello | None = None
        self._fault: Fault | None = None
        self._under_way: set[_Chunk[Item, Result]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._live, daemon=True, name="bench").start()

    def hello(self) -> Hello | Fault:
        """Waits until the bench is open, or cannot be opened."""
        self._open.wait()
        return self._fault or self._hello or Fault("the bench was closed")

    def results(self, items: Sequence[Item]) -> list[Result] | Fault:
        """The results of a chunk of at least one item."""
        chunk: _Chunk[Item, Result] = _Chunk(items)
        with self._lock:
            if self._fault is not None:
                return self._fault
            self._under_way.add(chunk)
        self._coming.put(chunk)
        chunk.over.wait()
        with self._lock:
            self._under_way.discard(chunk)
        complete = len(chunk.results) == len(items)
        return chunk.results if complete or self._fault is None else self._fault

    def _live(self) -> None:
        try:
            with self._opening(self._cores) as work:
                self._hello = Hello(sweet.__version__, work.told)
                self._open.set()
                while True:
                    self._through(work, self._coming.get())
        except BaseException as error:
            with self._lock:
                self._fault = Fault.of(error, lost=self._hello is not None)
                broken = list(self._under_way)
            self._open.set()
            for chunk in broken:
                chunk.over.set()

    def _through(self, work: Work[Item, Result], first: _Chunk[Item, Result]) -> None:
        """Work until there is no chunk that waits."""
        taken: deque[_Chunk[Item, Result]] = deque()

        def arriving() -> Iterator[Item]:
            chunk: _Chunk[Item, Result] | None = first
            while chunk is not None:
                for item in chunk.items:
                    taken.append(chunk)
                    yield item
                try:
                    chunk = self._coming.get_nowait()
                except Empty:
                    chunk = None

        for result in work.results(arriving()):
            taken.popleft().add(result)


class AsyncBench(Generic[Item, Result]):
    """The actor for work that answers each item by itself. Its methods are called by several threads at once."""

    def __init__(self, opening: AsyncOpening[Item, Result], cores: int) -> None:
        self._opening, self._cores = opening, cores
        self._work: Future[AsyncWork[Item, Result]] = Future()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_until_complete, args=(self._live(),), daemon=True, name="bench").start()

    def hello(self) -> Hello | Fault:
        """Waits until the bench is open, or cannot be opened."""
        try:
            return Hello(sweet.__version__, self._work.result().told)
        except BaseException as error:
            return Fault.of(error)

    def results(self, items: Sequence[Item]) -> list[Result] | Fault:
        """The results of a chunk."""
        work = self._work.result()

        async def all_of_them() -> list[Result]:
            return await asyncio.gather(*map(work.result, items))

        try:
            return asyncio.run_coroutine_threadsafe(all_of_them(), self._loop).result()
        except BaseException as error:
            return Fault.of(error)

    async def _live(self) -> None:
        try:
            async with self._opening(self._cores) as work:
                self._work.set_result(work)
                await asyncio.Event().wait()
        except BaseException as error:
            self._work.set_exception(error)
