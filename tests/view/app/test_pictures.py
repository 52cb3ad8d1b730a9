"""Pictures of pages in the application, by textual-image."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from textual.pilot import Pilot

from sweet.runs.run import Run
from sweet.view.app.parts_view import HIGHEST, HIGHEST_WHOLE, Pictures
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.viewer import ViewConfig
from tests.view.app.conftest import played, seen
from tests.view.test_run_screenshots import pages  # noqa: F401

SIZE = (80, 60)


def heights(app: ViewerApp) -> list[int]:
    """Return the rows of each row of pictures."""
    return [widget.size.height for widget in app.screen.query(Pictures)]


def test_a_page_is_beside_its_reference_and_whole_on_a_key(pages: Run) -> None:  # noqa: F811
    app = ViewerApp(pages, ViewConfig())

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert "▀" in seen(app)
        assert "turn 1 · 1280 × 720" in seen(app)
        assert "the reference page · 1280 × 1440" in seen(app)
        cropped = max(heights(app))
        assert cropped <= HIGHEST + 1
        await pilot.press("i")
        await pilot.pause()
        assert cropped <= max(heights(app)) <= HIGHEST_WHOLE + 1

    played(app, script, SIZE)


@pytest.mark.parametrize("hidden", ["", "textual_image.widget"])
def test_pictures_that_are_not_drawn_are_described(
    pages: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    hidden: str,
) -> None:
    if hidden:
        monkeypatch.setitem(sys.modules, hidden, None)
    else:
        monkeypatch.setenv("NO_COLOR", "1")
    app = ViewerApp(pages, ViewConfig())

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert "▀" not in seen(app)
        assert "1280 × 720" in seen(app)

    played(app, script, SIZE)


def test_the_key_is_there_only_for_pages(run: Run) -> None:
    app = ViewerApp(run, ViewConfig())

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        assert "pictures" not in seen(app).splitlines()[-1]

    played(app, script)
