"""`sweet status --follow`: shows what runs in a run until it ends.

On a terminal the lines are redrawn in place; in a pipe a line is printed where something has changed, at most one every
few seconds for each attempt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext

from rich.live import Live
from rich.text import Text

from sweet.cli import console
from sweet.cli.reporter import SECONDS_BETWEEN_LINES
from sweet.errors import Interrupted, SweetError
from sweet.inspection.status import attempt_to_follow, followed
from sweet.inspection.status_report import AttemptStatus
from sweet.runs.manifest import now
from sweet.runs.progress import AttemptProgress
from sweet.runs.run import Run
from sweet.units import format_duration, format_metric, format_rate

POLL_SECONDS = 0.5
QUIET_SECONDS = 15.0
"""Seconds without progress after which that is shown."""


def follow(run: Run, *, quiet: bool) -> AttemptStatus:
    """Show the progress of what runs until it ends, and return its last status.

    Args:
        quiet: show nothing.

    Raises:
        Interrupted: the user stopped following; what runs goes on.
    """
    attempt = attempt_to_follow(run)
    attempts = followed(run, attempt)
    output = console.output_console()
    redrawn = not quiet and console.can_redraw(output)
    lines: dict[str, tuple[AttemptProgress | None, float]] = {}
    try:
        with Live(console=output, auto_refresh=False, transient=True) if redrawn else nullcontext() as screen:
            while attempts[0].status == "running":
                if screen is not None:
                    screen.update(Text("\n").join(map(_line, attempts)), refresh=True)
                elif not quiet:
                    _print_changed(attempts, lines)
                time.sleep(POLL_SECONDS)
                attempts = followed(run, attempt)
    except KeyboardInterrupt:
        raise Interrupted(f"This command no longer follows {attempt}, which goes on.") from None
    return attempts[0]


def _print_changed(attempts: Sequence[AttemptStatus], lines: dict[str, tuple[AttemptProgress | None, float]]) -> None:
    """Print a line for each attempt that has changed.

    Args:
        lines: the progress that was shown of each attempt, and when the next line is due.
    """
    for attempt in attempts:
        shown, due = lines.get(attempt.id, (None, 0.0))
        begun = attempt is attempts[0] or (attempt.progress is not None and bool(attempt.progress.title))
        if begun and (attempt.id not in lines or shown != attempt.progress) and time.monotonic() >= due:
            lines[attempt.id] = attempt.progress, time.monotonic() + SECONDS_BETWEEN_LINES
            console.show(_line(attempt))


def raise_unless_done(ended: AttemptStatus) -> None:
    """Raise an error with the exit code of an attempt that failed or was stopped."""
    if ended.status == "done":
        return
    error = SweetError(f"{ended.id} is {ended.status}: {ended.error or 'no reason is recorded'}", where=ended.log)
    error.exit_code = ended.exit_code or SweetError.exit_code
    raise error


def progress_text(progress: AttemptProgress) -> Text:
    """Return how far an attempt is: `dialogues 12/40 · 3.1/s · 9 s left · failed 1`."""
    words = []
    if progress.title:
        uncounted = progress.total is None and not progress.done
        count = "" if uncounted else f" {progress.done:,}" + ("" if progress.total is None else f"/{progress.total:,}")
        words.append(progress.title + count)
    if progress.per_second is not None:
        words.append(format_rate(progress.per_second))
    if progress.seconds_left is not None:
        words.append(f"{format_duration(progress.seconds_left)} left")
    words += [f"{name} {format_metric(name, value)}" for name, value in progress.figures.items()]
    since = (now() - progress.changed).total_seconds()
    if since >= QUIET_SECONDS:
        words.append(f"no progress for {format_duration(since)}")
    return console.safe_text(" · ".join(words))


def _line(attempt: AttemptStatus) -> Text:
    text = console.safe_text(f"{attempt.id} ", "bold")
    if attempt.seconds is not None:
        text.append(f"{format_duration(attempt.seconds)}  ")
    return text if attempt.progress is None else text.append_text(progress_text(attempt.progress))
