"""The actor that runs on a node: it opens the work there, and processes chunks of items.

Ray calls its methods in as many threads as it may have chunks at a time. Errors are returned as a `Fault`, not raised,
because our exception classes may not survive pickling between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sweet.errors import SweetError, described
from sweet.installation import VERSION

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Work(Protocol[Item_contra, Result_co]):
    """Work on a node.

    Attributes:
        info: what the scheduler and its callers need to know about it before any item is processed.
    """

    @property
    def info(self) -> Mapping[str, Any]: ...

    def results(self, items: Sequence[Item_contra]) -> Sequence[Result_co]:
        """Return the result of each item in order. Several threads may call it at the same time."""
        ...


WorkFactory = Callable[[int], AbstractContextManager[Work[Item, Result]]]
"""Opens the work on a node, given the number of cores it may use. Sent to the node by pickle."""


@dataclass(frozen=True)
class Fault:
    """An error that is sent from one machine to another."""

    what: str
    where: str | None = None
    fix: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """The fault that describes an exception."""
        if isinstance(error, SweetError):
            return cls(error.what, error.where, error.fix)
        return cls(described(error))


class Worker(Generic[Item, Result]):
    """The actor.

    Args:
        factory: opens the work.
        cores: the cores of the node that this worker may use.
    """

    def __init__(self, factory: WorkFactory[Item, Result], cores: int) -> None:
        self._factory, self._cores = factory, cores
        self._open = ExitStack()

    def open(self) -> tuple[str, Mapping[str, Any]] | Fault:
        """Open the work, and return the version of sweet and `Work.info`; must be called first."""
        try:
            self._work = self._open.enter_context(self._factory(self._cores))
        except BaseException as error:
            return Fault.of(error)
        return VERSION, self._work.info

    def results(self, items: Sequence[Item]) -> Sequence[Result] | Fault:
        """Process a chunk and return one result for each item."""
        try:
            return self._work.results(items)
        except BaseException as error:
            return Fault.of(error)
