"""Html rollouts whose human is a model behind a real server: in painted browsers, and once in a real Firefox."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.render.firefox import find_firefox
from sweet.render.page import RenderFailed, RenderSettings, Screenshot, page_key
from sweet.render.screenshot_images import scaled
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.html.page import extract_page
from sweet.tasks.trajectory import Trajectory
from tests.llm.stand_in import install
from tests.render.pictures import page as picture
from tests.stages.chat_server import ChatServer, refused, said

SEEN = "Your header is blue; I have a green one in mind."


def config(**changes: Any) -> RolloutConfig:
    settings = {"task": "html", "tasks": "pages", "split": "test", "num_tasks": 2, "max_turns": 3, "agent": "scripted"}
    return RolloutConfig.model_validate(settings | {"temperature": 0, "sim": "eyes", "retry_timeout": 0.5} | changes)


def shot(html: str) -> Screenshot:
    """A picture for a page: the same for the same page, others for others."""
    return Screenshot(picture(int(hashlib.sha256(html.encode()).hexdigest()[:8], 16)), 640, 480, ())


class Painted:
    async def shoot(self, html: str) -> Screenshot:
        if "<hang>" in html:
            raise RenderFailed("timeout", "The page was not done within 15 seconds.")
        return shot(html)


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def browsers(store: Path | None, *, settings: RenderSettings) -> AsyncIterator[Painted]:
        yield Painted()

    monkeypatch.setattr("sweet.render.browsers.open_browsers", browsers)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", "html")


def pictures(body: dict[str, Any]) -> tuple[bytes, ...]:
    urls = [part["image_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
    return tuple(base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True) for url in urls)


def trajectories(run: Run) -> list[Trajectory]:
    path = run.file(run.artifact("rollouts-1"))
    return [Trajectory.model_validate(json.loads(line)) for line in path.read_text().splitlines()]


def pages(played: Trajectory) -> list[str]:
    return [extract_page(played.dialogue_history[turn].content) or "" for turn in played.agent_turns]


def test_the_human_is_shown_each_turns_pages_once(painted: None, run: Run) -> None:
    server = ChatServer("eyes", lambda body: said(SEEN))
    with server.running() as url:
        result = run_rollout(run, config(sim_url=[url]), Silent())
    assert (result.metrics.episodes, result.metrics.failed) == (2, 0)
    assert (result.metrics.human_prompt_tokens, result.metrics.human_completion_tokens) == (40, 16)
    trial, *asked = server.asked
    assert len(pictures(trial)) == 2
    rows = trajectories(run)
    looked_at = [(page, played.task.ground_truth) for played in rows for page in pages(played)[:-1]]
    assert len(asked) == len(looked_at) == 4, "the last page of a dialogue is not looked at"
    assert sorted(map(pictures, asked)) == sorted((shot(page).png, shot(wanted).png) for page, wanted in looked_at)
    assert all(played.dialogue_history[2].content == SEEN for played in rows)
    assert b"image_url" not in run.file(result.artifacts[0]).read_bytes()
    assert run.manifest().attempts[-1].environment["human"] == "eyes"


def test_a_server_that_shows_no_pictures_stops_it_before_anything_is_played(painted: None, run: Run) -> None:
    server = ChatServer("eyes", lambda body: refused(400, "eyes is not a multimodal model"))
    with server.running() as url, pytest.raises(UsageError, match="eyes is not a multimodal model"):
        run_rollout(run, config(sim_url=[url], num_tasks=None), Silent())
    assert len(server.asked) <= 9, "once in each form of a request"
    assert trajectories(run) == []


@pytest.mark.parametrize("sim", ["eyes", "scripted"])
def test_a_task_whose_reference_does_not_render_is_the_tasks_fault(
    painted: None, run: Run, tmp_path: Path, sim: str
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    row = {"id": "broken", "problem_description": "A bakery.", "ground_truth": "<html><body><hang></body></html>"}
    tasks.write_text(json.dumps(row) + "\n")
    server = ChatServer("eyes", lambda body: said(SEEN))
    with server.running() as url:
        urls = [] if sim == "scripted" else [url]
        result = run_rollout(run, config(tasks=str(tasks), sim=sim, sim_url=urls, num_tasks=None), Silent())
    assert (result.metrics.failed, result.metrics.human_faults) == (0, {"reference": 1})
    (played,) = trajectories(run)
    assert (played.outcome, played.fault) == ("human_error", "reference")
    assert "not done within 15 seconds" in str(played.error)
    assert "task broken" in str(played.error)
    assert len(server.asked) == (0 if sim == "scripted" else 1), "only the trial"


def test_a_model_that_would_be_run_in_this_process_cannot_see(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"must see pages.*as --local-engine says") as error:
        run_rollout(run, config(local_engine="embedded"), Silent())
    assert error.value.where == "--sim eyes"
    assert "--sim-url" in str(error.value.fix)
    assert not run.manifest().attempts


def test_the_vllm_that_is_started_takes_two_pictures(
    painted: None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = install(tmp_path, monkeypatch)
    result = run_rollout(run, config(local_engine="vllm", num_tasks=1), Silent())
    args = vllm.started()["args"]
    assert args[args.index("--limit-mm-per-prompt") + 1] == '{"image": 2}'
    assert result.metrics.episodes == 1
    assert trajectories(run)[0].dialogue_history[2].content == "I do not know, said eyes"
    assert vllm.all_gone()


@pytest.mark.usefixtures("one_browser")
def test_in_a_real_firefox(run: Run) -> None:
    try:
        find_firefox()
    except UsageError as error:
        pytest.skip(f"pages cannot be rendered here: {error.what}")
    server = ChatServer("eyes", lambda body: said(SEEN))
    with server.running() as url:
        result = run_rollout(run, config(sim_url=[url], num_tasks=1, max_turns=2), Silent())
    assert (result.metrics.episodes, result.metrics.failed) == (1, 0)
    (played,) = trajectories(run)
    store, settings = ScreenshotStore(run.path / SCREENSHOTS), RenderSettings()
    kept = [store.get(page_key(html, settings)) for html in (pages(played)[0], played.task.ground_truth)]
    shots = [found for found in kept if isinstance(found, Screenshot)]
    assert len(shots) == 2
    assert pictures(server.asked[-1]) == scaled(shots)
    assert shots[0].png != shots[1].png
