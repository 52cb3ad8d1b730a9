"""Driving the application with keys, and comparing its screens as text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

WIDE = (80, 24)
NARROW = (40, 20)
SNAPSHOTS = Path(__file__).parent / "snapshots"

Script = Callable[[Pilot[Any]], Awaitable[None]]
Snapshot = Callable[[App[Any] | Pilot[Any], str], None]


def played(app: App[Any], script: Script, size: tuple[int, int] = WIDE) -> None:
    """Run an application without a terminal until the script ends."""

    async def play() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            await script(pilot)

    asyncio.run(play())


async def until(pilot: Pilot[Any], there: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for an effect of a process or a timer."""
    async with asyncio.timeout(seconds):
        while not there():
            await pilot.pause(0.02)
    await pilot.pause()


async def answer(pilot: Pilot[Any], text: str) -> None:
    """Answer the prompt at the bottom of the screen, as if by pasting."""
    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")


def seen(app: App[Any]) -> str:
    """Return the lines of the screen without trailing blanks."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """Compares a screen with the text file of this name, which `--update-snapshots` writes."""

    def compare(app: App[Any] | Pilot[Any], name: str) -> None:
        text = seen(app.app if isinstance(app, Pilot) else app) + "\n"
        path = SNAPSHOTS / f"{name}.txt"
        if request.config.getoption("--update-snapshots"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
