"""Draws the messages and progress bars of stages on stderr.

On a terminal: live bars, redrawn at most four times a second, and lines above them. In a file or a pipe: plain lines,
at most one every few seconds for each bar, to keep logs readable. A finished bar leaves one line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from sweet.cli.console import can_redraw, narration_console, safe_text
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
        self.live = can_redraw(self.console) if live is None else live
        self.stamped = stamped
        self.started = time.monotonic()
        self.lock = threading.RLock()
        self._bars = _Bars(self.console)

    def say(self, text: str) -> None:
        self._print(safe_text(text))

    def warn(self, text: str) -> None:
        self._print(Text().append("warning: ", "yellow").append_text(safe_text(text)))

    def offer(self, text: str) -> None:
        """Report a line with a command to be copied: it is not broken to the width of the terminal."""
        self._print(safe_text(text), soft_wrap=True)

    def _print(self, text: Text, *, soft_wrap: bool = False) -> None:
        stamp = f"{time.monotonic() - self.started:8.2f} s  " if self.stamped else ""
        with self.lock:
            self.console.print(Text().append(stamp, "dim").append_text(text), soft_wrap=soft_wrap)

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Bar]:
        bar = Bar(self, title, total)
        with self._drawn(bar) if self.live else nullcontext():
            try:
                yield bar
            finally:
                bar.redraw = lambda: None  # a thread may go on counting
        with self.lock:
            took = format_duration(time.monotonic() - bar.started)
            self.say(f"{title}: {bar.count_text()}, {took}{bar.notes_text()}")

    @contextmanager
    def _drawn(self, bar: Bar) -> Iterator[None]:
        """Redraw a bar in this context, among those of other threads."""
        with self.lock:
            task = self._bars.add_task(safe_text(bar.title).markup, total=bar.total, notes="")
            if len(self._bars.tasks) == 1:
                self._bars.start()

        def redraw() -> None:
            notes = safe_text(bar.notes_text().removeprefix(" · ")).plain
            self._bars.update(task, completed=bar.count, notes=notes)

        bar.redraw = redraw
        try:
            yield
        finally:
            with self.lock:
                self._bars.remove_task(task)
                if not self._bars.tasks:
                    self._bars.stop()
                    self._bars = _Bars(self.console)


class Bar:
    """The counts of a bar. The lock is the reporter's. Unless it is drawn live it is a line every few seconds."""

    def __init__(self, reporter: ConsoleReporter, title: str, total: int | None) -> None:
        self.reporter, self.title, self.total = reporter, title, total
        self.started = self._last = time.monotonic()
        self.count = 0
        self.notes: dict[str, object] = {}
        self.redraw = self._print_line

    def advance(self, by: int = 1) -> None:
        with self.reporter.lock:
            self.count += by
            self.redraw()

    def note(self, **figures: object) -> None:
        with self.reporter.lock:
            self.notes = figures
            self.redraw()

    def _print_line(self) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            rate = self.count / max(now - self.started, 1e-9)
            self.reporter.say(f"{self.title}: {self.count_text()}, {format_rate(rate)}{self.notes_text()}")

    def count_text(self) -> str:
        return f"{self.count:,}" if self.total is None else f"{self.count:,}/{self.total:,}"

    def notes_text(self) -> str:
        return "".join(f" · {name} {format_metric(name, value)}" for name, value in self.notes.items())


class _Bars(Progress):
    """Shows the notes of each bar on a separate line below it, as one line has no room for both."""

    def __init__(self, console: Console) -> None:
        unbroken = Column(no_wrap=True)
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=unbroken),
            BarColumn(bar_width=None),
            MofNCompleteColumn(table_column=unbroken),
            *([TimeElapsedColumn(table_column=unbroken)] if console.width >= NARROW else []),
            TimeRemainingColumn(compact=True, table_column=unbroken),
            console=console,
            refresh_per_second=REDRAWS_PER_SECOND,
            expand=True,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if task.fields["notes"]:
                yield Text(f"  {task.fields['notes']}", style="dim", no_wrap=True, overflow="ellipsis")
