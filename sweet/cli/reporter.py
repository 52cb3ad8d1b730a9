"""Draws the messages and progress bars of stages on stderr.

On a terminal: live bars, redrawn at most four times a second, and lines above them. In a file or a pipe: plain lines,
at most one every few seconds for each bar, to keep logs readable. A finished bar leaves one line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from sweet.cli.console import narration_console, safe_text
from sweet.units import format_duration, format_metric, format_rate

REDRAWS_PER_SECOND = 4
SECONDS_BETWEEN_LINES = 5.0
NARROW = 60
"""Columns of a terminal below which a bar does not show the elapsed time."""


class ConsoleReporter:
    """Implements `sweet.stages.base.Reporter`. Thread-safe: every method holds one lock."""

    def __init__(self, console: Console | None = None, *, live: bool | None = None, stamped: bool = False) -> None:
        """
        Args:
            live: whether bars are redrawn; by default if stderr is a terminal that can move its cursor.
            stamped: whether each line begins with the seconds since the start.
        """
        self.console = console or narration_console()
        self.live = _can_redraw(self.console) if live is None else live
        self.stamped = stamped
        self.started = time.monotonic()
        self._lock = threading.RLock()
        self._bars: Progress | None = None
        self._open = 0

    def say(self, text: str) -> None:
        with self._lock:
            self.console.print(self._stamp().append_text(safe_text(text)))

    def warn(self, text: str) -> None:
        with self._lock:
            self.console.print(self._stamp().append("warning: ", "yellow").append_text(safe_text(text)))

    def offer(self, text: str) -> None:
        """Report a line with a command to be copied: it is not broken to the width of the terminal."""
        with self._lock:
            self.console.print(self._stamp().append_text(safe_text(text)), soft_wrap=True)

    def _stamp(self) -> Text:
        return Text().append(f"{time.monotonic() - self.started:8.2f} s  " if self.stamped else "", "dim")

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Bar]:
        bar: Bar = self._live_bar(title, total) if self.live else LineBar(self, title, total)
        try:
            yield bar
        except BaseException:
            self._close(bar, finished=False)
            raise
        self._close(bar, finished=True)

    def _live_bar(self, title: str, total: int | None) -> LiveBar:
        with self._lock:
            if self._bars is None:
                self._bars = _bars(self.console)
                self._bars.start()
            self._open += 1
            return LiveBar(self, title, total, self._bars)

    def _close(self, bar: Bar, *, finished: bool) -> None:
        with self._lock:
            if isinstance(bar, LiveBar):
                bar.remove()
                self._open -= 1
                if self._open == 0 and self._bars is not None:
                    self._bars.stop()
                    self._bars = None
            if finished:
                took = format_duration(time.monotonic() - bar.started)
                self.say(f"{bar.title}: {bar.count_text()}, {took}{bar.notes_text()}")


def _can_redraw(console: Console) -> bool:
    """FORCE_COLOR forces colours in a file, but not bars; a dumb terminal cannot move its cursor."""
    return console.file.isatty() and not console.is_dumb_terminal


class Bar:
    """The counts of a bar, live or not. The lock is the reporter's."""

    def __init__(self, reporter: ConsoleReporter, title: str, total: int | None) -> None:
        self.reporter, self.title, self.total = reporter, title, total
        self.started = time.monotonic()
        self.count = 0
        self.notes: dict[str, object] = {}

    def advance(self, by: int = 1) -> None:
        with self.reporter._lock:
            self.count += by
            self.redraw()

    def note(self, **figures: object) -> None:
        with self.reporter._lock:
            self.notes = figures
            self.redraw()

    def redraw(self) -> None:
        raise NotImplementedError

    def count_text(self) -> str:
        return f"{self.count:,}" if self.total is None else f"{self.count:,}/{self.total:,}"

    def notes_text(self) -> str:
        return "".join(f" · {name} {format_metric(name, value)}" for name, value in self.notes.items())


class LiveBar(Bar):
    """One line of the live display."""

    def __init__(self, reporter: ConsoleReporter, title: str, total: int | None, bars: Progress) -> None:
        super().__init__(reporter, title, total)
        self._bars = bars
        self._task: TaskID = bars.add_task(safe_text(title).markup, total=total, notes="")

    def redraw(self) -> None:
        self._bars.update(
            self._task, completed=self.count, notes=safe_text(self.notes_text().removeprefix(" · ")).plain
        )

    def remove(self) -> None:
        self._bars.remove_task(self._task)


class LineBar(Bar):
    """A plain line every few seconds."""

    def __init__(self, reporter: ConsoleReporter, title: str, total: int | None) -> None:
        super().__init__(reporter, title, total)
        self._last = self.started

    def redraw(self) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            rate = self.count / max(now - self.started, 1e-9)
            self.reporter.say(f"{self.title}: {self.count_text()}, {format_rate(rate)}{self.notes_text()}")


class _Bars(Progress):
    """Shows the notes of each bar on a separate line below it, as one line has no room for both."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.fields["notes"]:
                yield Text(f"  {task.fields['notes']}", style="dim", no_wrap=True, overflow="ellipsis")


def _bars(console: Console) -> Progress:
    wide = console.width >= NARROW
    return _Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        *([TimeElapsedColumn(table_column=Column(no_wrap=True))] if wide else []),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        console=console,
        refresh_per_second=REDRAWS_PER_SECOND,
        expand=True,
    )
