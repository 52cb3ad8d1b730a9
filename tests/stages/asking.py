"""Requests to a stage that runs in this process, as `sweet control` makes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sweet.runs.attempt import control_path, progress_path
from sweet.runs.control import Action, request
from sweet.runs.progress import Answer, AttemptProgress, read_progress
from sweet.runs.run import Run
from sweet.runs.store import Store


def send(run: Run, attempt: str, action: Action, value: str = "") -> int:
    """Write a request, and return its number."""
    root = run.path.absolute()
    return request(Store(root), control_path(root, attempt), action, value, after=0)


async def ask(run: Run, attempt: str, action: Action, value: str = "") -> Answer:
    """Make a request and wait for the answer of a stage in the same event loop."""
    number = send(run, attempt, action, value)
    while True:
        progress = read_progress(progress_path(run.path.absolute(), attempt))
        found = [one for one in progress.answers if one.number == number] if progress is not None else []
        if found:
            return found[0]
        await asyncio.sleep(0.01)


def wait_until_paused(run: Path, attempt: str) -> AttemptProgress:
    """Wait, in another thread than the stage's, and return the progress."""
    limit = time.monotonic() + 60
    while True:
        progress = read_progress(progress_path(run, attempt))
        if progress is not None and progress.paused:
            return progress
        assert time.monotonic() < limit
        time.sleep(0.01)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (files tell no event loop that they have changed)
        await asyncio.sleep(0.01)
