"""Who does what: chunks of items go to the benches of a cluster's nodes, and their results come back.

Each node has one bench (or one for each GPU), and each bench a few chunks at a time: one it works on, and others that
wait there, so that it never waits for this process. One thread hands out, takes results, and looks who is there; who
wants work done submits chunks from any other thread.

A bench that is lost (its process died, its node is gone, it told a fault) is opened again where its node still lives,
and its chunks are done elsewhere in the meantime. A chunk has its results from one bench, whole, or has none: so every
item is counted once. A node that fails again and again is left out by name, and so is one that cannot do the work from
the beginning. A chunk whose bench was lost has the next one for itself, and when that happens to it again and again it
ends the work: it would take down the others too. Nodes that join the cluster meanwhile are taken in.

Items that have something in common (answers to one task: what the reference gives) go to the same bench as long as no
other has too little to do, so that this is done once and not by every node.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self

import sweet
from sweet.cluster.nodes import Cluster, Node
from sweet.cluster.worker import AsyncBench, AsyncOpening, Bench, Fault, Hello, Item, Opening, Result
from sweet.device import CORES
from sweet.errors import SweetError, described

AT_ONCE = 6
"""Chunks that a bench has at a time, where nobody knows better."""

AT_ONCE_HERE = "at_once"
"""Under this a bench may tell that it wants fewer."""

RUNNING_DRY = 2
"""A bench with fewer chunks takes those of another bench, if that has so many more."""

IN_HAND = 16_384
"""Items that `Spread.results` has taken and not given back, at most: their results wait for one before them."""

FAILURES = 3
"""A node is left out when its bench was lost so often in a row, and a chunk ends the work that lost so many benches."""

OPENING_SECONDS = 180.0
"""So long the first benches may take to open. Those that do later are taken in then."""

LOOK_SECONDS = 5.0
"""How often nodes are counted."""

TELL_SECONDS = 60.0
"""How often people are told what each node has done."""

_GONE = Fault("it is gone")

Accept = Callable[[str, Mapping[str, Any]], str | None]
"""Why a node's bench, which tells this of itself, is of no use; None where it is."""


@dataclass(eq=False)
class _Chunk(Generic[Item, Result]):
    """Items that are done together.

    Attributes:
        lane: of the bench that should do it, modulo the number of benches; None where any will do.
        lost: benches that were lost over it.
    """

    number: int
    items: list[Item]
    lane: int | None = None
    results: Future[list[Result]] = field(default_factory=Future)
    lost: int = 0

    @property
    def turn(self) -> tuple[bool, int]:
        """Lower ones are handed out first."""
        return not self.lost, self.number


@dataclass(eq=False)
class _Place(Generic[Item, Result]):
    """Where a bench is, or is to be.

    Attributes:
        bench: Ray's handle of the actor.
        open: whether the bench has said hello and was accepted.
        at_once: chunks that it has at a time.
        chunks: what it has to do.
        failures: benches lost here since the last result.
    """

    node: Node
    bench: Any = None
    open: bool = False
    at_once: int = 0
    chunks: list[_Chunk[Item, Result]] = field(default_factory=list)
    failures: int = 0

    def takes(self, chunk: _Chunk[Item, Result]) -> bool:
        """Whether it has room for it. A chunk that was lost before has a bench for itself."""
        room = 1 if chunk.lost else self.at_once
        return self.open and len(self.chunks) < room and not any(mine.lost for mine in self.chunks)


@dataclass(frozen=True)
class _Heard(Generic[Item, Result]):
    """What a bench has answered: to a chunk, or (None) to who it is."""

    place: _Place[Item, Result]
    bench: Any
    chunk: _Chunk[Item, Result] | None
    answer: Future[Any]


class Spread(Generic[Item, Result]):
    """Work on the nodes of a cluster, while it is entered.

    Args:
        opening: opens the work on a node; goes there by pickle.
        bench: which kind of work it is.
        at_once: chunks that a bench has at a time.
        gpus: a bench for each GPU, which it has for itself, instead of one for each node.
        light: the benches take none of the cluster's cores: they hardly do anything.
        accept: asked about each bench that has opened.
        say: tells people one line.

    Attributes:
        told: by name of the node, what its bench told.
        out: by name of the node, why it was left out.
        done: items done, by name of the node.
        cores: by name of the node, how many its benches have.
    """

    def __init__(
        self,
        cluster: Cluster,
        opening: Opening[Item, Result] | AsyncOpening[Item, Result],
        *,
        bench: type[Bench[Any, Any]] | type[AsyncBench[Any, Any]] = Bench,
        at_once: int = AT_ONCE,
        gpus: bool = False,
        light: bool = False,
        accept: Accept | None = None,
        say: Callable[[str], None],
    ) -> None:
        self.cluster, self.opening, self.bench, self.at_once = cluster, opening, bench, at_once
        self.gpus, self.light = gpus, light
        self.accept, self.say = accept, say
        self.told: dict[str, Mapping[str, Any]] = {}
        self.done: Counter[str] = Counter()
        self.cores: dict[str, int] = {}
        self._numbers = itertools.count()
        self._events: SimpleQueue[_Chunk[Item, Result] | _Heard[Item, Result] | None] = SimpleQueue()
        self._places: list[_Place[Item, Result]] = []
        self._waiting: list[_Chunk[Item, Result]] = []  # by their turn
        self.out: dict[str, str] = {}
        self._known: set[str] = set()
        self._looked = 0.0
        self._told_at, self._told_done = time.monotonic(), 0
        self._begun = threading.Event()
        self._error: SweetError | None = None
        self._thread = threading.Thread(target=self._live, name="spread", daemon=True)

    def __enter__(self) -> Self:
        """Open the benches that can be opened now.

        Raises:
            SweetError: there is none; says why of each node.
        """
        self._thread.start()
        try:
            self._begun.wait()
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
    def benches(self) -> int:
        """Those that are there or are being opened."""
        return len(self._places)

    def record(self, *told: str) -> dict[str, dict[str, Any]]:
        """What is kept of who did the work: by name of the node its items, its cores, and what of this it told."""
        return {
            name: {"items": self.done[name], CORES: self.cores[name]}
            | {part: node[part] for part in told if node.get(part) is not None}
            for name, node in sorted(self.told.items())
        }

    def submit(self, items: list[Item]) -> Future[list[Result]]:
        """Have items done together by one bench; their results in their order, or the SweetError that ended all."""
        chunk: _Chunk[Item, Result] = _Chunk(next(self._numbers), items)
        self._events.put(chunk)
        return chunk.results

    def results(
        self, items: Iterable[Item], together: int, affinity: Callable[[Item], str] | None = None
    ) -> Iterator[Result]:
        """The result of each item, in their order; so many go to a bench together. Items are taken as they are needed.

        Args:
            affinity: items of which it says the same go to the same bench while all have enough to do.

        Raises:
            SweetError: no node is left, or the same items took several benches down.
        """
        rows = iter(items)
        filling: dict[int | None, _Chunk[Item, Result]] = {}
        under_way: deque[tuple[_Chunk[Item, Result], int]] = deque()
        while True:
            # Two chunks more than the benches can have, so that none waits for this process.
            while len(under_way) < min(IN_HAND, (self.at_once + 2) * together * max(1, self.benches)):
                try:
                    item = next(rows)
                except StopIteration:
                    for chunk in filling.values():
                        self._events.put(chunk)
                    filling.clear()
                    break
                lane = zlib.crc32(affinity(item).encode()) % max(1, self.benches) if affinity else None
                if lane not in filling:
                    filling[lane] = _Chunk(next(self._numbers), [], lane)
                chunk = filling[lane]
                under_way.append((chunk, len(chunk.items)))
                chunk.items.append(item)
                if len(chunk.items) == together:
                    self._events.put(filling.pop(lane))
            if not under_way:
                return
            chunk, place = under_way.popleft()
            if filling.get(chunk.lane) is chunk:  # there are not enough others yet, and its results are wanted now
                self._events.put(filling.pop(chunk.lane))
            yield chunk.results.result()[place]

    def _live(self) -> None:
        """The thread: see who is there, take what is heard, hand out, until the end is told."""
        deadline = time.monotonic() + OPENING_SECONDS
        try:
            while True:
                self._look()
                self._tell(TELL_SECONDS)
                opening = [place for place in self._places if not place.open]
                if not opening or (self.told and time.monotonic() > deadline):
                    self._begun.set()
                elif time.monotonic() > deadline:
                    self.say("No node has opened yet: the cluster may have no free cores. Still waiting.")
                    deadline += OPENING_SECONDS
                try:
                    event = self._events.get(timeout=LOOK_SECONDS)
                except Empty:
                    continue
                if event is None:
                    self._tell(0)
                    return
                if isinstance(event, _Chunk):
                    self._queue(event)
                elif event.bench is event.place.bench:  # not one that is lost already
                    self._hear(event)
                self._hand_out()
        except SweetError as error:
            self._error = error
        except BaseException as error:
            self._error = SweetError(f"The work on the cluster ended: {described(error)}")
        finally:
            self._end()

    def _end(self) -> None:
        """Close the benches, and tell whoever waits, now or later, that nothing more will come."""
        error = self._error or SweetError("The work on the cluster was ended.")
        open_chunks = [*self._waiting, *(chunk for place in self._places for chunk in place.chunks)]
        for place in self._places:
            self._kill(place)
        self._begun.set()
        while True:
            for chunk in open_chunks:
                _settle(chunk.results, error)
            event = self._events.get() if self._error is not None else None
            if event is None:
                return
            open_chunks = [event] if isinstance(event, _Chunk) else []

    def _look(self) -> None:
        """Give nodes up that are gone, open benches on those that have none; SweetError where there is no node left."""
        now = time.monotonic()
        if self._places and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        nodes = self.cluster.nodes()
        alive = {node.id for node in nodes}
        for place in [place for place in self._places if place.node.id not in alive]:
            self._lose(place, _GONE)  # Ray does not tell of a bench that was to be opened there
        for node in nodes:
            if node.id not in self._known:
                self._known.add(node.id)
                for _ in range(node.gpus if self.gpus else 1):
                    place = _Place[Item, Result](node)
                    self._places.append(place)
                    self._open(place)
        if not self._places:
            told = [f"{name}: {why}" for name, why in self.out.items()]
            why = "; ".join(told) or "no node gives a CPU" + (" and a GPU" if self.gpus else "")
            raise SweetError(
                f"No node of the cluster can do the work: {why}.",
                where=f"--ray {self.cluster.address}",
                fix=f"sweet doctor --ray {self.cluster.address}",
            )

    def _tell(self, after: float) -> None:
        """Say what each node has done, where something was done since it was last said and so many seconds are over."""
        now, total = time.monotonic(), self.done.total()
        if now - self._told_at >= after and total > self._told_done:
            self._told_at, self._told_done = now, total
            self.say("Done by node: " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.done.items())))

    def _queue(self, chunk: _Chunk[Item, Result]) -> None:
        bisect.insort(self._waiting, chunk, key=lambda chunk: chunk.turn)

    def _hand_out(self) -> None:
        """Give every open bench what it may have, what was lost before any other."""
        for chunk in list(self._waiting):
            if chunk.results.cancelled():
                self._waiting.remove(chunk)
                continue
            free = [place for place in self._places if place.takes(chunk)]
            if not free:
                return
            if (place := self._best(chunk, free)) is not None:
                self._waiting.remove(chunk)
                place.chunks.append(chunk)
                self._listen(place, chunk, place.bench.results.remote(chunk.items))

    def _best(self, chunk: _Chunk[Item, Result], free: list[_Place[Item, Result]]) -> _Place[Item, Result] | None:
        """Who of those with room does a chunk: its lane's bench, or the least busy; None where it waits for its own."""
        idlest = min(free, key=lambda place: len(place.chunks))
        if chunk.lost or chunk.lane is None:
            return idlest
        own, short = self._places[chunk.lane % len(self._places)], len(idlest.chunks) < RUNNING_DRY
        if own in free:
            return idlest if short and len(own.chunks) - len(idlest.chunks) >= RUNNING_DRY else own
        return idlest if short or not own.open else None

    def _listen(self, place: _Place[Item, Result], chunk: _Chunk[Item, Result] | None, ref: Any) -> None:
        """Hear of what a reference will stand for."""
        bench = place.bench
        ref.future().add_done_callback(lambda answer: self._events.put(_Heard(place, bench, chunk, answer)))

    def _hear(self, heard: _Heard[Item, Result]) -> None:
        place, chunk = heard.place, heard.chunk
        error = heard.answer.exception()
        found = Fault(described(error), lost=True) if error else heard.answer.result()
        if chunk is None and not (isinstance(found, Fault) and found.lost):
            self._greet(place, found)
        elif isinstance(found, Fault) and found.lost:
            self._lose(place, found)
        elif chunk is not None:
            place.chunks.remove(chunk)
            place.failures = 0
            if isinstance(found, Fault):
                _settle(chunk.results, SweetError(found.what, where=found.where, fix=found.fix))
            else:
                self.done[place.node.name] += len(chunk.items)
                _settle(chunk.results, found)

    def _greet(self, place: _Place[Item, Result], found: Hello | Fault) -> None:
        """Take in a bench that says hello, unless it is of no use."""
        if isinstance(found, Fault):
            self._leave_out(place, found)
            return
        name = place.node.name
        if found.version != sweet.__version__:
            why: str | None = f"it has sweet {found.version}, and this is {sweet.__version__}"
        else:
            why = self.accept(name, found.told) if self.accept else None
        if why is not None:
            self._leave_out(place, Fault(why))
            return
        place.open = True
        place.at_once = min(found.told.get(AT_ONCE_HERE, self.at_once), self.at_once)
        self.told[name], self.cores[name] = found.told, place.node.cpus

    def _lose(self, place: _Place[Item, Result], fault: Fault) -> None:
        """A bench is lost: its chunks are for others, and another one is opened in its place while that may help."""
        chunks, place.chunks = place.chunks, []
        gone = fault is _GONE or place.node.id not in {node.id for node in self.cluster.nodes()}
        for chunk in chunks:
            chunk.lost += not gone
            self._queue(chunk)
        deadly = next((chunk for chunk in chunks if chunk.lost >= FAILURES), None)
        if deadly is not None:
            what = f"{deadly.lost} workers were lost over the same {len(deadly.items)} items: {fault.what}"
            raise SweetError(what, where=fault.where or place.node.name, fix=fault.fix)
        place.failures += 1
        if gone:
            self._leave_out(place, _GONE)
        elif place.failures >= FAILURES:
            self._leave_out(place, fault)
        else:
            self._kill(place)
            self._open(place)

    def _leave_out(self, place: _Place[Item, Result], fault: Fault) -> None:
        """A bench has no part in it from now on. A node that is left out may join the cluster again as another."""
        self._kill(place)
        self._places.remove(place)
        self.out[place.node.name] = fault.what + (f" (try: {fault.fix})" if fault.fix else "")
        self.say(f"Left out: {place.node.name}: {self.out[place.node.name]}")

    def _open(self, place: _Place[Item, Result]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = place.node
        cores = max(1, node.cpus // node.gpus) if self.gpus else node.cpus
        actor = self.cluster.ray.remote(self.bench).options(
            num_cpus=0 if self.light else cores,
            num_gpus=1 if self.gpus else 0,
            max_concurrency=self.at_once + 1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        place.open, place.bench = False, actor.remote(self.opening, cores)
        self._listen(place, None, place.bench.hello.remote())

    def _kill(self, place: _Place[Item, Result]) -> None:
        bench, place.bench = place.bench, None
        if bench is not None:
            self.cluster.ray.kill(bench)


def _settle(results: Future[list[Result]], outcome: list[Result] | SweetError) -> None:
    """Give whoever waits the outcome; somebody who has given up (a cancelled task) wants none."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, SweetError):
            results.set_exception(outcome)
        else:
            results.set_result(outcome)
