"""A run that is copied while a stage is at work: on the disk is then what a kill would have left.

To compare a resumed training with one that was never stopped takes two trainings so, and three without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from sweet.runs.run import Run
from sweet.stages.base import Progress, Silent


class Copying(Silent):
    """Copies the run when more than so many are counted.

    Args:
        of: what is counted: the title of the progress.
    """

    def __init__(self, run: Run, after: int, of: str) -> None:
        self.source, self.left, self.of = run.path, after, of
        self.folder = self.source.with_name("killed")

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        copying = self

        class Bar:
            def advance(self, by: int = 1) -> None:
                copying.count(title, by)

            def note(self, **figures: object) -> None: ...

        yield Bar()

    def count(self, title: str, by: int) -> None:
        before = self.left
        self.left -= by if title == self.of else 0
        if before >= 0 > self.left:
            shutil.copytree(self.source, self.folder)

    def killed(self) -> Run:
        """The copy, in which the stage has not ended."""
        run = Run.open(self.folder)
        assert run.manifest().attempts[-1].status == "running"
        return run
