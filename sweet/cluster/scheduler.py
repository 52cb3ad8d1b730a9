"""Schedules chunks of items onto the workers of a cluster's nodes, and returns their results in order.

Each node has one worker, or one for each GPU (see `sweet.cluster.chunks` for which worker gets which chunk). One thread
assigns chunks, receives results and monitors the nodes; callers submit chunks from any other thread.

A worker that is lost (its process died, its node is gone, it reported a fault) is replaced if its node is still alive,
and other workers process its chunks in the meantime. A chunk gets its results from exactly one worker, complete or not
at all, so every item is counted once. A node that fails repeatedly is excluded by name, and so is one that cannot open
the work at all. A chunk that loses several workers in a row ends the run with an error, because it would take down the
remaining workers too. Nodes that join the cluster later are added.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self

from sweet.cluster.chunks import Chunk, Slot, choose_slot
from sweet.cluster.nodes import Cluster
from sweet.cluster.worker import AsyncWorker, AsyncWorkFactory, Fault, Item, Ready, Result, Worker, WorkFactory
from sweet.device import CORES
from sweet.errors import SweetError, described
from sweet.hints import option
from sweet.installation import VERSION
from sweet.units import count

CHUNKS_PER_WORKER = 6
"""Default number of chunks that a worker holds at a time."""

CAPACITY = "chunks_per_worker"
"""Key of `Work.info` by which a worker asks for fewer chunks."""

MAX_PENDING_ITEMS = 16_384
"""Most items that `Scheduler.results` has read and not yet yielded: their results wait for an earlier one."""

MAX_FAILURES = 3
"""A node is excluded after so many lost workers in a row; a chunk that lost so many workers ends the run."""

STARTUP_SECONDS = 180.0
"""How long the first workers may take to open. Those that take longer are added later."""

REFRESH_SECONDS = 5.0
"""Interval at which the cluster's nodes are listed."""

REPORT_SECONDS = 60.0
"""Interval at which the progress of each node is reported."""

_GONE = Fault("the node is gone")

Accept = Callable[[str, Mapping[str, Any]], str | None]
"""Given a node's name and its worker's `Work.info`, returns why the worker cannot be used, or None if it can."""


@dataclass(frozen=True)
class _Answer(Generic[Item, Result]):
    """What a worker returned: for a chunk, or (None) for `wait_ready`."""

    slot: Slot[Item, Result]
    worker: Any
    chunk: Chunk[Item, Result] | None
    answer: Future[Any]


class Scheduler(Generic[Item, Result]):
    """Runs work on the nodes of a cluster while the context is open.

    Args:
        factory: opens the work on a node; sent there by pickle.
        worker: the actor class, according to the kind of work.
        chunks_per_worker: how many chunks a worker holds at a time.
        gpus: one worker for each GPU, which it has to itself, instead of one for each node.
        light: the workers reserve no cores, because they do hardly any work.
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
        factory: WorkFactory[Item, Result] | AsyncWorkFactory[Item, Result],
        *,
        worker: type[Worker[Any, Any]] | type[AsyncWorker[Any, Any]] = Worker,
        chunks_per_worker: int = CHUNKS_PER_WORKER,
        gpus: bool = False,
        light: bool = False,
        accept: Accept | None = None,
        say: Callable[[str], None],
    ) -> None:
        self.cluster, self.factory, self.worker = cluster, factory, worker
        self.chunks_per_worker, self.gpus, self.light = chunks_per_worker, gpus, light
        self.accept, self.say = accept, say
        self.node_info: dict[str, Mapping[str, Any]] = {}
        self.excluded: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.cores: dict[str, int] = {}
        self._numbers = itertools.count()
        self._events: SimpleQueue[Chunk[Item, Result] | _Answer[Item, Result] | None] = SimpleQueue()
        self._slots: list[Slot[Item, Result]] = []
        self._waiting: list[Chunk[Item, Result]] = []  # sorted by priority
        self._known: set[str] = set()
        self._refreshed = 0.0
        self._reported_at, self._reported_items = time.monotonic(), 0
        self._started = threading.Event()
        self._error: SweetError | None = None
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
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._events.put(None)
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
        chunk: Chunk[Item, Result] = Chunk(next(self._numbers), items)
        self._events.put(chunk)
        return chunk.results

    def results(
        self, items: Iterable[Item], chunk_size: int, affinity: Callable[[Item], str] | None = None
    ) -> Iterator[Result]:
        """Yield the result of each item in order. Items are consumed lazily and sent in chunks of `chunk_size`.

        Args:
            affinity: items for which it returns the same text go to the same worker while all workers are busy.

        Raises:
            SweetError: no node is left, or the same items took down several workers.
        """
        rows = iter(items)
        filling: dict[int | None, Chunk[Item, Result]] = {}
        pending: deque[tuple[Chunk[Item, Result], int]] = deque()
        while True:
            # Two chunks more than the workers hold, so that none waits for this process.
            wanted = (self.chunks_per_worker + 2) * chunk_size * max(1, self.worker_count)
            while len(pending) < min(MAX_PENDING_ITEMS, wanted):
                try:
                    item = next(rows)
                except StopIteration:
                    for chunk in filling.values():
                        self._events.put(chunk)
                    filling.clear()
                    break
                lane = zlib.crc32(affinity(item).encode()) % max(1, self.worker_count) if affinity else None
                if lane not in filling:
                    filling[lane] = Chunk(next(self._numbers), [], lane)
                chunk = filling[lane]
                pending.append((chunk, len(chunk.items)))
                chunk.items.append(item)
                if len(chunk.items) == chunk_size:
                    self._events.put(filling.pop(lane))
            if not pending:
                return
            chunk, index = pending.popleft()
            if filling.get(chunk.lane) is chunk:  # still incomplete, but its results are needed now
                self._events.put(filling.pop(chunk.lane))
            yield chunk.results.result()[index]

    def _run(self) -> None:
        """The thread: refresh the nodes, handle events, assign chunks, until the context is closed."""
        deadline = time.monotonic() + STARTUP_SECONDS
        try:
            while True:
                self._refresh_nodes()
                self._report_progress(REPORT_SECONDS)
                opening = [slot for slot in self._slots if not slot.ready]
                if not opening or (self.node_info and time.monotonic() > deadline):
                    self._started.set()
                elif time.monotonic() > deadline:
                    self.say("No node has opened yet: the cluster may have no free cores. Still waiting.")
                    deadline += STARTUP_SECONDS
                try:
                    event = self._events.get(timeout=REFRESH_SECONDS)
                except Empty:
                    continue
                if event is None:
                    self._report_progress(0)
                    return
                if isinstance(event, Chunk):
                    self._enqueue(event)
                elif event.worker is event.slot.worker:  # not from one that has been replaced
                    self._handle(event)
                self._assign_chunks()
        except SweetError as error:
            self._error = error
        except BaseException as error:
            self._error = SweetError(f"The work on the cluster ended: {described(error)}")
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        """Close the workers and fail all chunks that are unfinished now or, after an error, submitted later."""
        error = self._error or SweetError("The work on the cluster was ended.")
        unfinished = [*self._waiting, *(chunk for slot in self._slots for chunk in slot.chunks)]
        for slot in self._slots:
            self._kill(slot)
        self._started.set()
        while True:
            for chunk in unfinished:
                chunk.resolve(error)
            event = self._events.get() if self._error is not None else None
            if event is None:
                return
            unfinished = [event] if isinstance(event, Chunk) else []

    def _refresh_nodes(self) -> None:
        """Drop nodes that are gone and open workers on new ones; SweetError if no node is left."""
        now = time.monotonic()
        if self._slots and now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        nodes = self.cluster.nodes()
        alive = {node.id for node in nodes}
        for slot in [slot for slot in self._slots if slot.node.id not in alive]:
            self._handle_loss(slot, _GONE)  # Ray does not report an actor that was still waiting for its node
        for node in nodes:
            if node.id not in self._known:
                self._known.add(node.id)
                for _ in range(node.gpus if self.gpus else 1):
                    slot = Slot[Item, Result](node)
                    self._slots.append(slot)
                    self._open(slot)
        if not self._slots:
            reasons = [f"{name}: {why}" for name, why in self.excluded.items()]
            why = "; ".join(reasons) or "no node gives a CPU" + (" and a GPU" if self.gpus else "")
            raise SweetError(
                f"No node of the cluster can do the work: {why}.",
                where=option("ray", self.cluster.address),
                fix=f"sweet doctor --ray {self.cluster.address}",
            )

    def _report_progress(self, interval: float) -> None:
        """Print what each node has done, if that changed and the last report is at least `interval` seconds ago."""
        now, total = time.monotonic(), self.done.total()
        if now - self._reported_at >= interval and total > self._reported_items:
            self._reported_at, self._reported_items = now, total
            self.say("Done by node: " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.done.items())))

    def _enqueue(self, chunk: Chunk[Item, Result]) -> None:
        bisect.insort(self._waiting, chunk, key=lambda chunk: chunk.priority)

    def _assign_chunks(self) -> None:
        """Assign waiting chunks, in order of priority, to slots that have room."""
        for chunk in list(self._waiting):
            if chunk.results.cancelled():
                self._waiting.remove(chunk)
                continue
            free = [slot for slot in self._slots if slot.has_room_for(chunk)]
            if not free:
                return
            if (slot := choose_slot(chunk, free, self._slots)) is not None:
                self._waiting.remove(chunk)
                slot.chunks.append(chunk)
                self._subscribe(slot, chunk, slot.worker.results.remote(chunk.items))

    def _subscribe(self, slot: Slot[Item, Result], chunk: Chunk[Item, Result] | None, ref: Any) -> None:
        """Turn the completion of an object reference into an event."""
        worker = slot.worker
        ref.future().add_done_callback(lambda answer: self._events.put(_Answer(slot, worker, chunk, answer)))

    def _handle(self, event: _Answer[Item, Result]) -> None:
        slot, chunk = event.slot, event.chunk
        error = event.answer.exception()
        outcome = Fault(described(error), lost=True) if error else event.answer.result()
        if chunk is None and not (isinstance(outcome, Fault) and outcome.lost):
            self._admit(slot, outcome)
        elif isinstance(outcome, Fault) and outcome.lost:
            self._handle_loss(slot, outcome)
        elif chunk is not None:
            slot.chunks.remove(chunk)
            slot.failures = 0
            if isinstance(outcome, Fault):
                chunk.resolve(SweetError(outcome.what, where=outcome.where, fix=outcome.fix))
            else:
                self.done[slot.node.name] += len(chunk.items)
                chunk.resolve(outcome)

    def _admit(self, slot: Slot[Item, Result], outcome: Ready | Fault) -> None:
        """Use a worker that has opened, or exclude it."""
        if isinstance(outcome, Fault):
            self._exclude(slot, outcome)
            return
        name = slot.node.name
        if outcome.version != VERSION:
            why: str | None = f"it has sweet {outcome.version}, and this is {VERSION}"
        else:
            why = self.accept(name, outcome.info) if self.accept else None
        if why is not None:
            self._exclude(slot, Fault(why))
            return
        slot.ready = True
        slot.capacity = min(outcome.info.get(CAPACITY, self.chunks_per_worker), self.chunks_per_worker)
        self.node_info[name], self.cores[name] = outcome.info, slot.node.cpus

    def _handle_loss(self, slot: Slot[Item, Result], fault: Fault) -> None:
        """Requeue the chunks of a lost worker, and replace the worker while that may help."""
        chunks, slot.chunks = slot.chunks, []
        gone = fault is _GONE or slot.node.id not in {node.id for node in self.cluster.nodes()}
        for chunk in chunks:
            chunk.lost += not gone
            self._enqueue(chunk)
        deadly = next((chunk for chunk in chunks if chunk.lost >= MAX_FAILURES), None)
        if deadly is not None:
            what = f"{deadly.lost} workers were lost over the same {count(len(deadly.items), 'item')}: {fault.what}"
            raise SweetError(what, where=fault.where or slot.node.name, fix=fault.fix)
        slot.failures += 1
        if gone:
            self._exclude(slot, _GONE)
        elif slot.failures >= MAX_FAILURES:
            self._exclude(slot, fault)
        else:
            self._kill(slot)
            self._open(slot)

    def _exclude(self, slot: Slot[Item, Result], fault: Fault) -> None:
        """Remove a slot for good. A node that is excluded may join the cluster again under another id."""
        self._kill(slot)
        self._slots.remove(slot)
        self.excluded[slot.node.name] = fault.what + (f" (try: {fault.fix})" if fault.fix else "")
        self.say(f"Excluded {slot.node.name}: {self.excluded[slot.node.name]}")

    def _open(self, slot: Slot[Item, Result]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = slot.node
        cores = max(1, node.cpus // node.gpus) if self.gpus else node.cpus
        actor = self.cluster.ray.remote(self.worker).options(
            num_cpus=0 if self.light else cores,
            num_gpus=1 if self.gpus else 0,
            max_concurrency=self.chunks_per_worker + 1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        slot.ready, slot.worker = False, actor.remote(self.factory, cores)
        self._subscribe(slot, None, slot.worker.wait_ready.remote())

    def _kill(self, slot: Slot[Item, Result]) -> None:
        worker, slot.worker = slot.worker, None
        if worker is not None:
            self.cluster.ray.kill(worker)
