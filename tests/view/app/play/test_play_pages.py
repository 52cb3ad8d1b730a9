"""`sweet play` on pages: the scripted writer's page and the reference page are drawn, from a real Firefox."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sweet.errors import UsageError
from sweet.render.firefox import find_firefox
from sweet.rollouts.play.config import PlayConfig
from sweet.rollouts.play.interface import Play
from sweet.rollouts.play.stage import run_play
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.view.app.play import PlayApp, TextualInterface
from tests.view.app.conftest import seen, until

try:
    find_firefox()
except UsageError as error:
    pytest.skip(f"pages cannot be rendered here: {error.what}", allow_module_level=True)


@pytest.mark.usefixtures("one_browser")
def test_a_person_sees_both_pages(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="html")
    drawn: list[str] = []

    class Driven(TextualInterface):
        def run(self, play: Play) -> None:
            app = self._app = PlayApp(run, play)
            screen = app.player_screen

            async def work() -> None:
                async with app.run_test(size=(120, 70)) as pilot:
                    await until(pilot, lambda: screen.situation is not None and screen.situation.state == "yours", 90)
                    await pilot.pause(0.2)
                    drawn.append(seen(app))
                    await pilot.press(*"Larger", "ctrl+s")
                    await until(
                        pilot, lambda: screen.situation is not None and screen.situation.state == "finished", 90
                    )
                    await pilot.press("n")
                    await until(pilot, lambda: not app.is_running, 90)

            asyncio.run(work())
            assert app.failure is None

    config = PlayConfig(
        task="html", tasks="pages", split="test", num_tasks=1, max_turns=2, agent="scripted", name="ada"
    )
    result = run_play(run, config, Silent(), Driven(run))
    assert result.metrics.outcomes == {"out_of_turns": 1}
    assert "the agent's page · 1280 ×" in drawn[0]
    assert "the reference page · 1280 ×" in drawn[0]
    assert "▀" in drawn[0]
    assert "only you know" not in drawn[0] or "<html" in drawn[0]
