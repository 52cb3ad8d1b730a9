"""Work for the tests of the scheduler, each with its own way to fail. Sent to the nodes by pickle."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from sweet.errors import SweetError


class Doubling:
    """Twice each number; reads two items ahead, as work that runs several at once does."""

    def __init__(self, info: Mapping[str, Any], seconds: float = 0.0) -> None:
        self.info, self.seconds = info, seconds

    def results(self, items: Iterable[int]) -> Iterator[int]:
        rows, ahead = iter(items), []
        for item in rows:
            ahead.append(item)
            if len(ahead) > 2:
                yield self._one(ahead.pop(0))
        for item in ahead:
            yield self._one(item)

    def _one(self, item: int) -> int:
        time.sleep(self.seconds)
        return 2 * item


@contextmanager
def doubling(seconds: float, cores: int) -> Iterator[Doubling]:
    yield Doubling({"cores": cores, "pid": os.getpid()}, seconds)


class Where(Doubling):
    """Returns the id of the process that handled the item."""

    def _one(self, item: int) -> int:
        super()._one(item)
        return os.getpid()


@contextmanager
def where(seconds: float, cores: int) -> Iterator[Where]:
    yield Where({"cores": cores}, seconds)


class OnGpu(Doubling):
    """Returns the GPU and the number of cores that the worker has."""

    def _one(self, item: int) -> tuple[str, int]:  # type: ignore[override]
        super()._one(item)
        return os.environ["CUDA_VISIBLE_DEVICES"], self.info["cores"]


@contextmanager
def on_gpu(cores: int) -> Iterator[OnGpu]:
    yield OnGpu({"cores": cores}, 0.005)


@contextmanager
def nowhere(cores: int) -> Iterator[Doubling]:
    if cores:
        raise SweetError(f"There is no sandbox for {cores} cores.", fix="apt-get install bubblewrap")
    yield Doubling({})


@contextmanager
def first_only(mark: Path, cores: int) -> Iterator[Doubling]:
    """Can be opened once on this machine."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        raise SweetError("One is enough.") from None
    yield Doubling({"cores": cores})


class Deadly(Doubling):
    """Dies of one item each time it gets it, until the folder holds `times` marks."""

    def __init__(self, marks: Path, times: int, item: int, *, raises: bool) -> None:
        super().__init__({})
        self.marks, self.times, self.item, self.raises = marks, times, item, raises

    def _one(self, item: int) -> int:
        if item == self.item and len(list(self.marks.iterdir())) < self.times:
            (self.marks / str(time.monotonic_ns())).touch()
            if self.raises:
                raise SweetError("The jail does not stay alive.", where="here", fix="sweet doctor")
            os._exit(1)
        return super()._one(item)


@contextmanager
def deadly(marks: Path, times: int, item: int, raises: bool, cores: int) -> Iterator[Deadly]:
    yield Deadly(marks, times, item, raises=raises)


class OddOnly:
    """Twice each odd number, slowly, any number of them concurrently."""

    info: ClassVar[Mapping[str, Any]] = {}

    async def result(self, item: int, /) -> int:
        await asyncio.sleep(0.05)
        if item % 2 == 0:
            raise SweetError(f"{item} is even.", fix="another number")
        return 2 * item


@asynccontextmanager
async def odd_only(cores: int) -> AsyncIterator[OddOnly]:
    yield OddOnly()
