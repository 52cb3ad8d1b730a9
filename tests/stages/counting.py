"""Reporters that do something while a stage is at work, when it counts: raise, copy the run, send a signal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from sweet.runs.run import Run
from sweet.stages.base import Progress, Silent


class Counting(Silent):
    """Calls `counted` with the title of a progress bar and by how much it advances."""

    def counted(self, title: str, by: int) -> None:
        raise NotImplementedError

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        counting = self

        class Bar:
            def advance(self, by: int = 1) -> None:
                counting.counted(title, by)

            def note(self, **figures: object) -> None: ...

        yield Bar()


class Acting(Counting):
    """Calls `act` whenever more than so many are counted.

    Args:
        of: what is counted, the title of the bar; by default whatever is.
    """

    def __init__(self, left: int, of: str | None = None) -> None:
        self.left, self.of = left, of

    def counted(self, title: str, by: int) -> None:
        self.left -= by if self.of in (None, title) else 0
        if self.left < 0:
            self.act()

    def act(self) -> None:
        raise NotImplementedError


class StoppedError(Exception):
    pass


class Stopping(Acting):
    """Raises an error."""

    def act(self) -> None:
        raise StoppedError


class Copying(Acting):
    """Copies the run when more than so many are counted: on the disk is then what a kill would have left. To compare a
    resumed training with one that was never stopped takes two trainings so, and three without."""

    def __init__(self, run: Run, after: int, of: str) -> None:
        super().__init__(after, of)
        self.source, self.folder = run.path, run.path.with_name("killed")

    def act(self) -> None:
        if not self.folder.exists():
            shutil.copytree(self.source, self.folder)

    def killed(self) -> Run:
        """The copy, in which the stage has not ended."""
        run = Run.open(self.folder)
        assert run.manifest().attempts[-1].status == "running"
        return run
