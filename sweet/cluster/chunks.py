"""Chunks of items, the slots that hold a worker each, and which slot gets which chunk.

A slot holds a few chunks at a time: one in progress and others queued on the node, so that its worker never waits for
this process. A chunk with a lane belongs to the slot of that number, so that items that share expensive state (answers
to one task share the reference's results) are processed by the same worker; another slot takes it only when it is about
to run out of work. A chunk whose worker was lost gets the next worker to itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Generic

from sweet.cluster.nodes import Node
from sweet.cluster.worker import Item, Result
from sweet.errors import SweetError

LOW_WATER_MARK = 2
"""A slot with fewer chunks takes those of another lane, if that lane's slot has at least this many more."""


@dataclass(eq=False)
class Chunk(Generic[Item, Result]):
    """Items that are processed together.

    Attributes:
        number: increases from chunk to chunk.
        lane: the slot that should process it, modulo the number of slots; None for any.
        results: resolved once, with one result for each item or with a SweetError.
        lost: how many workers were lost while they had it.
    """

    number: int
    items: list[Item]
    lane: int | None = None
    results: Future[list[Result]] = field(default_factory=Future)
    lost: int = 0

    @property
    def priority(self) -> tuple[bool, int]:
        """Sort key: chunks that lost a worker first, then in order of submission."""
        return not self.lost, self.number

    def resolve(self, outcome: list[Result] | SweetError) -> None:
        """Set the results or the error, unless the caller has cancelled the chunk."""
        with contextlib.suppress(InvalidStateError):
            if isinstance(outcome, SweetError):
                self.results.set_exception(outcome)
            else:
                self.results.set_result(outcome)


@dataclass(eq=False)
class Slot(Generic[Item, Result]):
    """A slot for one worker on a node; the worker is replaced when it is lost.

    Attributes:
        worker: Ray's handle of the actor.
        ready: whether the worker has opened and was accepted.
        capacity: how many chunks it holds at a time.
        chunks: the chunks assigned to it.
        failures: workers lost here since the last result.
    """

    node: Node
    worker: Any = None
    ready: bool = False
    capacity: int = 0
    chunks: list[Chunk[Item, Result]] = field(default_factory=list)
    failures: int = 0

    def has_room_for(self, chunk: Chunk[Item, Result]) -> bool:
        """Whether the chunk can be assigned now. A chunk that lost a worker before has the next one to itself."""
        capacity = 1 if chunk.lost else self.capacity
        return self.ready and len(self.chunks) < capacity and not any(assigned.lost for assigned in self.chunks)


def choose_slot(
    chunk: Chunk[Item, Result], free: Sequence[Slot[Item, Result]], slots: Sequence[Slot[Item, Result]]
) -> Slot[Item, Result] | None:
    """The slot that gets a chunk: its lane's, or the least busy one.

    Args:
        free: the slots that have room for it, at least one.
        slots: all slots; lanes are counted over these.

    Returns:
        None if the chunk should wait for its lane's slot.
    """
    idlest = min(free, key=lambda slot: len(slot.chunks))
    if chunk.lost or chunk.lane is None:
        return idlest
    own, short = slots[chunk.lane % len(slots)], len(idlest.chunks) < LOW_WATER_MARK
    if own in free:
        return idlest if short and len(own.chunks) - len(idlest.chunks) >= LOW_WATER_MARK else own
    return idlest if short or not own.ready else None
