"""Progress as bars on a terminal, and as plain lines at intervals otherwise."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from sweet.cli.reporter import ConsoleReporter
from sweet.stages.base import Progress


def reporter(*, live: bool) -> tuple[ConsoleReporter, io.StringIO]:
    stream = io.StringIO()
    return ConsoleReporter(Console(file=stream, width=120, force_terminal=live), live=live), stream


def test_lines_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    report, stream = reporter(live=False)
    clock = [0.0]
    monkeypatch.setattr("sweet.cli.reporter.time.monotonic", lambda: clock[0])
    with report.progress("work", 1000) as bar:
        for _ in range(1000):
            clock[0] += 0.012
            bar.advance()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("work: 417/1,000, 83.3/s")
    assert lines[-1] == "work: 1,000/1,000, 12 s"


def advance_by_hundred(bar: Progress) -> None:
    for _ in range(100):
        bar.advance()


@pytest.mark.parametrize("live", [True, False])
def test_bars_nest_and_threads_share_one(live: bool) -> None:
    report, stream = reporter(live=live)
    with report.progress("outer", None), report.progress("inner [x]", 400) as bar:
        workers = [threading.Thread(target=advance_by_hundred, args=(bar,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        report.say("meanwhile \x1b[31m")
        for worker in workers:
            worker.join()
    assert "inner [x]: 400/400" in stream.getvalue()
    assert "meanwhile ␛[31m" in stream.getvalue()


def test_a_failed_bar_reports_no_end() -> None:
    report, stream = reporter(live=True)
    with pytest.raises(ValueError, match="x"), report.progress("work", 5):
        raise ValueError("x")
    assert "work: " not in stream.getvalue()
    with report.progress("again", 1) as bar:
        bar.advance()
    assert "again: 1/1" in stream.getvalue()


class Terminal(io.StringIO):
    """A terminal that can be closed."""

    gone = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_closed_terminal_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    reporter = ConsoleReporter(live=True)
    with reporter.progress("dialogues", 3) as bar:
        terminal.gone = True
        bar.advance()
    reporter.say("done")
