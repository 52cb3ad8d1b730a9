"""What a running stage shows to other terminals.

`LiveReporter` passes every message on to the reporter of the call, and writes the counts to the file of the attempt
(`sweet.runs.progress`), which `sweet status` reads. Stages make it as soon as their attempt has begun, so it does not
matter who calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from sweet.runs.attempt import ActiveAttempt
from sweet.runs.progress import ProgressFile
from sweet.stages.base import Progress, Reporter


class LiveReporter:
    """The reporter of a running attempt (implements `sweet.stages.base.Reporter`).

    Attributes:
        tokens: counts what the models of the attempt read and write.
    """

    def __init__(self, reporter: Reporter, attempt: ActiveAttempt) -> None:
        self._reporter, self.tokens = reporter, attempt.tokens
        self._file = ProgressFile(attempt.progress_path)

    def say(self, text: str) -> None:
        self._reporter.say(text)

    def warn(self, text: str) -> None:
        self._reporter.warn(text)

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Progress]:
        with self._file.counting(title, total) as counter, self._reporter.progress(title, total) as bar:
            yield _Bars(bar, counter)

    def step(self, title: str, figures: Mapping[str, object]) -> AbstractContextManager[object]:
        """Show a title and figures to other terminals alone, within the block."""
        return self._file.counting(title, None, figures)


class _Bars:
    """Counts in several places: on a bar of the reporter of the call, and in the file."""

    def __init__(self, *bars: Progress) -> None:
        self._bars = bars

    def advance(self, by: int = 1) -> None:
        for bar in self._bars:
            bar.advance(by)

    def note(self, **figures: object) -> None:
        for bar in self._bars:
            bar.note(**figures)
