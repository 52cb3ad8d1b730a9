"""Html rollouts where something draws in the browsers' place: what is slow, what cannot be played, what is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sweet.errors import UsageError
from sweet.render.page import RenderSettings, Screenshot
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.html.view import Part, View
from sweet.tasks.html.writer import as_page
from tests.humans.test_scripted_page_human import Drawing
from tests.render.pictures import save_photo

FINE = as_page(View(900, "#ffffff", (Part("box", 0, 0, 1280, 110, "#f59e0b"),)))
OPENED: list[RenderSettings] = []
"""The settings with which what draws was opened."""

BROKEN = "<html><p>slow</p></html>"
TAILWIND = (
    '<html><head><link href="https://cdn.jsdelivr.net/npm/tailwindcss@2.2.19/dist/tailwind.min.css"></head></html>'
)


class Slow(Drawing):
    async def shoot(self, html: str) -> Screenshot:
        await asyncio.sleep(0.2)
        return await super().shoot(html)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One with something that draws, and without assets."""

    @asynccontextmanager
    async def open_slow(store: Path, *, settings: RenderSettings) -> AsyncIterator[Slow]:
        OPENED.append(settings)
        yield Slow()

    monkeypatch.setattr("sweet.render.browsers.open_browsers", open_slow)
    monkeypatch.setattr("sweet.render.requirements.find_firefox", lambda: None)
    monkeypatch.setenv("SWEET_DATA", str(tmp_path / "data"))


def config(folder: Path, *pages: str, **more: Any) -> RolloutConfig:
    file = folder / "tasks.jsonl"
    rows = [{"id": f"t{i}", "problem_description": "A page.", "ground_truth": page} for i, page in enumerate(pages)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RolloutConfig(**{"task": "html", "tasks": str(file), "agent": "scripted", "temperature": 0, **more})


def test_the_deadline_does_not_count_what_browsers_take(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "html")
    metrics = run_rollout(run, config(tmp_path, FINE, max_turns=4, deadline=0.3), Silent()).metrics
    assert (metrics.episodes, metrics.failed) == (1, 0)


def test_a_task_whose_page_does_not_render_is_played_once(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "html")
    setting = config(tmp_path, FINE, BROKEN, max_turns=2)
    metrics = run_rollout(run, setting, Silent()).metrics
    assert (metrics.episodes, metrics.failed) == (2, 0)
    assert metrics.outcomes["human_error"] == 1
    assert metrics.human_faults == {"reference": 1}


@pytest.mark.parametrize(
    ("page", "agent"),
    [(TAILWIND, {"agent": "scripted"}), (FINE, {"agent": "model", "agent_url": ["http://127.0.0.1:1"]})],
)
def test_what_pages_load_is_looked_for_before_the_first_dialogue(
    tmp_path: Path, page: str, agent: dict[str, Any]
) -> None:
    run = Run.create(tmp_path / "run", "html")
    with pytest.raises(UsageError) as caught:
        run_rollout(run, config(tmp_path, page, **agent), Silent())
    assert caught.value.fix == "sweet data assets"
    assert run.manifest().attempts == []


def test_the_window_and_the_images_are_chosen_by_option_or_protocol_and_recorded(tmp_path: Path) -> None:
    def played(name: str, **options: Any) -> tuple[RenderSettings, Any, Any]:
        run = Run.create(tmp_path / name, "html")
        OPENED.clear()
        meta = run_rollout(run, config(tmp_path, FINE, max_turns=1, **options), Silent()).artifacts[0].meta
        return OPENED[0], meta["window"], meta["pictures"]

    assert played("default") == (RenderSettings(), "1280x720", "placeholder")
    assert played("own", window="800x600") == (RenderSettings(800, 600), "800x600", "placeholder")
    assert played("published", protocol="upstream") == (RenderSettings(1366, 682), "1366x682", "placeholder")
    with pytest.raises(UsageError) as caught:
        played("photo", pictures="photo")
    assert caught.value.fix == "sweet data assets --photo"
    rule = save_photo(tmp_path / "data" / "assets")
    assert played("shown", pictures="photo") == (RenderSettings().showing(rule), "1280x720", rule)
    assert played("both", protocol="upstream") == (RenderSettings(1366, 682).showing(rule), "1366x682", rule)


def test_code_has_no_window(tmp_path: Path) -> None:
    for name, value in (("window", "800x600"), ("pictures", "photo")):
        with pytest.raises(UsageError, match="no pages to render"):
            run_rollout(Run.create(tmp_path / name, "code"), RolloutConfig(**{name: value}), Silent())
    with pytest.raises(ValidationError, match="WIDTHxHEIGHT"):
        RolloutConfig(window="wide")


def test_what_draws_is_looked_for_before_a_model_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> None:
        raise UsageError("Rendering pages needs Firefox, and there is none.")

    monkeypatch.setattr("sweet.render.requirements.find_firefox", nowhere)
    with pytest.raises(UsageError, match="needs Firefox"):
        run_rollout(Run.create(tmp_path / "run", "html"), config(tmp_path, FINE), Silent())
