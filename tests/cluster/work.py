"""Work for the tests of the scheduler, each with its own way to fail. Sent to the nodes by pickle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweet.errors import SweetError


class Doubling:
    """Twice each number."""

    def __init__(self, info: Mapping[str, Any], seconds: float = 0.0) -> None:
        self.info, self.seconds = info, seconds

    def results(self, items: Sequence[int]) -> list[int]:
        return [self._one(item) for item in items]

    def _one(self, item: int) -> int:
        time.sleep(self.seconds)
        return 2 * item


@contextmanager
def doubling(seconds: float, cores: int) -> Iterator[Doubling]:
    yield Doubling({"cores": cores, "pid": os.getpid()}, seconds)


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
