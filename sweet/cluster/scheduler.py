"""Schedules chunks of items onto the workers of a cluster's nodes, and returns their results in order.

Each node has one worker, or one for each GPU, which holds a few chunks at a time: it takes the next one from a queue
that all workers share. Callers submit chunks from any thread; an event loop in a thread of its own does the rest.

A worker that is lost (its process died, its node is gone, it reported a fault) is replaced if its node is still alive,
and its chunks are queued again, before all others. A chunk gets its results from exactly one worker, complete or not at
all, so every item is counted once. A node that fails repeatedly is excluded by name, and so is one that cannot open the
work at all. A chunk that loses several workers ends the run with an error, because it would take down the remaining
workers too. Nodes that join the cluster later are added.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Self

from sweet.cluster.nodes import Cluster, Node
from sweet.cluster.worker import Fault, Item, Result, Worker, WorkFactory
from sweet.device import CORES
from sweet.errors import SweetError, described
from sweet.gathering import first_cause
from sweet.hints import option
from sweet.installation import VERSION
from sweet.units import count

CHUNKS_PER_WORKER = 6
"""Default number of chunks that a worker holds at a time."""

MAX_PENDING_ITEMS = 16_384
"""Most items that `Scheduler.results` has read and not yet yielded: their results wait for an earlier one."""

MAX_FAILURES = 3
"""A node is excluded after so many lost workers in a row; a chunk that lost so many workers ends the run."""

STARTUP_SECONDS = 180.0
"""How long the first workers may take to open. Those that take longer are added later."""

REFRESH_SECONDS = 5.0
"""Interval at which the cluster's nodes are listed."""

_GONE = Fault("the node is gone")

Accept = Callable[[str, Mapping[str, Any]], str | None]
"""Given a node's name and its worker's `Work.info`, returns why the worker cannot be used, or None if it can."""


@dataclass(eq=False)
class _Chunk(Generic[Item, Result]):
    """Items that are processed together.

    Attributes:
        number: increases from chunk to chunk.
        results: resolved once, with one result for each item or with a SweetError.
        lost: how many workers were lost while they had it.
    """

    number: int
    items: list[Item]
    results: Future[list[Result]] = field(default_factory=Future)
    lost: int = 0

    def __lt__(self, other: _Chunk[Item, Result]) -> bool:
        """Chunks that lost a worker come first, then the order is that of submission."""
        return (not self.lost, self.number) < (not other.lost, other.number)


@dataclass(eq=False)
class _Slot(Generic[Item, Result]):
    """A slot for one worker on a node; the worker is replaced when it is lost.

    Attributes:
        ready: whether a worker has opened here and was accepted.
        chunks: those that it has.
        failures: workers lost here since the last result.
    """

    node: Node
    ready: bool = False
    chunks: list[_Chunk[Item, Result]] = field(default_factory=list)
    failures: int = 0


class Scheduler(Generic[Item, Result]):
    """Runs work on the nodes of a cluster while the context is open.

    Args:
        factory: opens the work on a node; sent there by pickle.
        chunks_per_worker: how many chunks a worker holds at a time.
        gpus: one worker for each GPU, which it has to itself, instead of one for each node.
        accept: decides about each worker that has opened.
        say: prints one line for the user.

    Attributes:
        node_info: `Work.info` of its worker, by name of the node.
        excluded: why a node is excluded, by name of the node.
        done: number of items done, by name of the node.
        cores: number of cores its workers have, by name of the node.
    """

    def __init__(
        self,
        cluster: Cluster,
        factory: WorkFactory[Item, Result],
        *,
        chunks_per_worker: int = CHUNKS_PER_WORKER,
        gpus: bool = False,
        accept: Accept | None = None,
        say: Callable[[str], None],
    ) -> None:
        self.cluster, self.factory = cluster, factory
        self.chunks_per_worker, self.gpus = chunks_per_worker, gpus
        self.accept, self.say = accept, say
        self.node_info: dict[str, Mapping[str, Any]] = {}
        self.excluded: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.cores: dict[str, int] = {}
        self._numbers = itertools.count()
        self._queue: asyncio.PriorityQueue[_Chunk[Item, Result]] = asyncio.PriorityQueue()
        self._slots: dict[_Slot[Item, Result], asyncio.Task[None]] = {}
        self._known: set[str] = set()
        self._changed, self._closing, self._started = asyncio.Event(), asyncio.Event(), threading.Event()
        self._lock = threading.Lock()  # of the two that follow
        self._unfinished: set[_Chunk[Item, Result]] = set()
        self._error: SweetError | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def __enter__(self) -> Self:
        """Open the workers that can be opened now.

        Raises:
            SweetError: no worker could be opened; says why for each node.
        """
        self._thread.start()
        try:
            self._started.wait()
            if self._error is not None:
                raise self._error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: Any) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    @property
    def worker_count(self) -> int:
        """The number of workers that are open or being opened."""
        return len(self._slots)

    def record(self, *keys: str) -> dict[str, dict[str, Any]]:
        """What is recorded about each node, by its name: items done, cores, and these entries of its `Work.info`."""
        return {
            name: {"items": self.done[name], CORES: self.cores[name]}
            | {key: info[key] for key in keys if info.get(key) is not None}
            for name, info in sorted(self.node_info.items())
        }

    def submit(self, items: list[Item]) -> Future[list[Result]]:
        """Process items together on one worker.

        Returns:
            A future of one result for each item in order, or of the SweetError that ended the work.
        """
        chunk: _Chunk[Item, Result] = _Chunk(next(self._numbers), items)
        with self._lock:
            if self._error is not None:
                chunk.results.set_exception(self._error)
            else:
                self._unfinished.add(chunk)
                self._loop.call_soon_threadsafe(self._queue.put_nowait, chunk)
        return chunk.results

    def results(self, items: Iterable[Item], chunk_size: int) -> Iterator[Result]:
        """Yield the result of each item in order. Items are consumed lazily and sent in chunks of `chunk_size`.

        Raises:
            SweetError: no node is left, or the same items took down several workers.
        """
        rows = iter(items)
        chunks = iter(lambda: list(itertools.islice(rows, chunk_size)), [])
        pending: deque[Future[list[Result]]] = deque()
        while True:
            # Two chunks more than the workers hold, so that none waits for this process.
            wanted = min(MAX_PENDING_ITEMS // chunk_size, (self.chunks_per_worker + 2) * max(1, self.worker_count))
            room = max(0, wanted - len(pending))
            pending.extend(map(self.submit, itertools.islice(chunks, room)))
            if not pending:
                return
            yield from pending.popleft().result()

    # The event loop -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """The thread: work until the context is closed, and then fail all chunks that are unfinished."""
        try:
            self._loop.run_until_complete(self._serve())
        except BaseExceptionGroup as errors:
            error = first_cause(errors)
        except BaseException as one:
            error = one
        if not isinstance(error, SweetError):
            error = SweetError(f"The work on the cluster ended: {described(error)}")
        with self._lock:
            self._error = error
            self._loop.close()
        for chunk in self._unfinished:
            with suppress(InvalidStateError):  # the caller has cancelled it
                chunk.results.set_exception(error)
        self._started.set()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as workers:
            watching = workers.create_task(self._watch(workers))
            await self._closing.wait()
            watching.cancel()
            raise SweetError("The work on the cluster was ended.")

    async def _watch(self, workers: asyncio.TaskGroup) -> None:
        """Look for nodes that are new or gone."""
        deadline, refresh = time.monotonic() + STARTUP_SECONDS, 0.0
        while True:
            if not self._slots or time.monotonic() >= refresh:
                refresh = time.monotonic() + REFRESH_SECONDS
                self._refresh_nodes(workers)
            if all(slot.ready for slot in self._slots) or (self.node_info and time.monotonic() > deadline):
                self._started.set()
            elif time.monotonic() > deadline:
                self.say("No node has opened yet: the cluster may have no free cores. Still waiting.")
                deadline += STARTUP_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    def _refresh_nodes(self, workers: asyncio.TaskGroup) -> None:
        """Drop nodes that are gone and open workers on new ones; SweetError if no node is left."""
        nodes = self.cluster.nodes()
        alive = {node.id for node in nodes}
        for slot in [slot for slot in self._slots if slot.node.id not in alive]:
            self._slots[slot].cancel()  # Ray does not report an actor that was still waiting for its node
            self._exclude(slot, _GONE)
        for node in nodes:
            if node.id not in self._known:
                self._known.add(node.id)
                for _ in range(node.gpus if self.gpus else 1):
                    slot = _Slot[Item, Result](node)
                    self._slots[slot] = workers.create_task(self._work(slot))
        if not self._slots:
            reasons = [f"{name}: {why}" for name, why in self.excluded.items()]
            why = "; ".join(reasons) or "no node gives a CPU" + (" and a GPU" if self.gpus else "")
            raise SweetError(
                f"No node of the cluster can do the work: {why}.",
                where=option("ray", self.cluster.address),
                fix="run sweet doctor on that machine",
            )

    async def _work(self, slot: _Slot[Item, Result]) -> None:
        """Keep a worker in a slot until its node is excluded.

        Raises:
            SweetError: the same chunk has lost several workers.
        """
        while True:
            actor = self._actor(slot.node)
            try:
                if (refused := await self._refused(slot, actor)) is not None:
                    self._exclude(slot, refused)
                    return
                fault = await self._process(slot, actor)
            except self.cluster.ray.exceptions.RayError as error:
                fault = Fault(described(error))
            except asyncio.CancelledError:
                self._queue_again(slot, 0)
                raise
            finally:
                self.cluster.ray.kill(actor)
            gone = slot.node.id not in {node.id for node in self.cluster.nodes()}
            deadly = next((chunk for chunk in slot.chunks if not gone and chunk.lost + 1 >= MAX_FAILURES), None)
            if deadly is not None:
                what = f"{MAX_FAILURES} workers were lost over the same {count(len(deadly.items), 'item')}"
                raise SweetError(f"{what}: {fault.what}", where=fault.where or slot.node.name, fix=fault.fix)
            self._queue_again(slot, int(not gone))
            slot.failures += 1
            if gone or slot.failures >= MAX_FAILURES:
                self._exclude(slot, _GONE if gone else fault)
                return

    def _queue_again(self, slot: _Slot[Item, Result], lost: int) -> None:
        chunks, slot.chunks = slot.chunks, []
        for chunk in chunks:
            chunk.lost += lost
            self._queue.put_nowait(chunk)

    def _actor(self, node: Node) -> Any:
        """Start the process of a worker."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        cores = max(1, node.cpus // node.gpus) if self.gpus else node.cpus
        actor = self.cluster.ray.remote(Worker).options(
            num_cpus=cores,
            num_gpus=1 if self.gpus else 0,
            max_concurrency=self.chunks_per_worker,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        return actor.remote(self.factory, cores)

    async def _refused(self, slot: _Slot[Item, Result], actor: Any) -> Fault | None:
        """Open the work of a worker; return why the worker cannot be used, or None if it can."""
        outcome: tuple[str, Mapping[str, Any]] | Fault = await actor.open.remote()
        if isinstance(outcome, Fault):
            return outcome
        name, (version, info) = slot.node.name, outcome
        if version != VERSION:
            return Fault(f"it has sweet {version}, and this is {VERSION}")
        if self.accept is not None and (why := self.accept(name, info)) is not None:
            return Fault(why)
        self.node_info[name], self.cores[name] = info, slot.node.cpus
        slot.ready = True
        self._changed.set()
        return None

    async def _process(self, slot: _Slot[Item, Result], actor: Any) -> Fault:
        """Process chunks, as many at a time as the worker holds, until it reports a fault; errors are Ray's."""
        processing = [asyncio.create_task(self._process_chunks(slot, actor)) for _ in range(self.chunks_per_worker)]
        try:
            ended, _ = await asyncio.wait(processing, return_when=asyncio.FIRST_COMPLETED)
            return ended.pop().result()
        finally:
            for task in processing:
                task.cancel()
            await asyncio.gather(*processing, return_exceptions=True)

    async def _process_chunks(self, slot: _Slot[Item, Result], actor: Any) -> Fault:
        while True:
            chunk = await self._queue.get()
            if chunk.results.cancelled():
                self._unfinished.discard(chunk)
                continue
            slot.chunks.append(chunk)
            outcome: list[Result] | Fault = await actor.results.remote(chunk.items)
            if isinstance(outcome, Fault):
                return outcome
            slot.chunks.remove(chunk)
            slot.failures = 0
            self.done[slot.node.name] += len(chunk.items)
            self._unfinished.discard(chunk)
            with suppress(InvalidStateError):  # the caller has cancelled it
                chunk.results.set_result(outcome)

    def _exclude(self, slot: _Slot[Item, Result], fault: Fault) -> None:
        """Remove a slot for good. A node that is excluded may join the cluster again under another id."""
        del self._slots[slot]
        self._changed.set()
        self.excluded[slot.node.name] = fault.what + (f" (try: {fault.fix})" if fault.fix else "")
        self.say(f"Excluded {slot.node.name}: {self.excluded[slot.node.name]}")
