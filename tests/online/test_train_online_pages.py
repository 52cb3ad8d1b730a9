"""Online training on tasks that show pages: in a real Firefox, and where something paints in the browsers' place."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import plan_train_online, run_train_online
from sweet.render.firefox import _table
from sweet.render.page import RenderFailed, RenderSettings, Screenshot
from sweet.render.similarity_pixels import Pixels
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests import programs
from tests.online.page_writer import BEGIN, COLOURS, PAGES, make_page_writer, write_tasks
from tests.online.test_train_online import PROGRAM, rows
from tests.render.pictures import page as picture
from tests.render.real_browser import needs_firefox
from tests.stages.chat_server import ChatServer, said

WITHOUT_ASSETS = "import sweet.render.requirements as requirements\nrequirements.ASSETS = ()\n"
"""The pages load none, and a model that writes pages would need all."""


@pytest.fixture(autouse=True)
def _without_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.render.requirements.ASSETS", ())


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_page_writer(tmp_path_factory.mktemp("agent") / "writer")


def options(writer: str, folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        **{"task": "html", "tasks": write_tasks(folder / "tasks.jsonl"), "agent": writer, "similarity": "pixels"},
        **{"algorithm": "grpo", "steps": 3, "tasks_per_step": 2, "group": 4, "max_turns": 2, "max_tokens": 8},
        **{"lr": 1e-3, "save_every": 1, "resume": True, "device": "cpu"},
        **changes,
    }


def run_of(folder: Path) -> Run:
    return Run.create(folder / "run", "html")


@needs_firefox
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
@pytest.mark.usefixtures("one_browser")
def test_a_training_that_is_killed_leaves_no_browser_and_ends_when_it_is_resumed(writer: str, tmp_path: Path) -> None:
    run = run_of(tmp_path)
    given = options(writer, tmp_path, steps=2, validate_every=1)
    browsers = tmp_path / "browsers"
    browsers.mkdir()
    environment = {**os.environ, "TMPDIR": str(browsers)}
    command = ["-c", WITHOUT_ASSETS + PROGRAM, str(run.path), json.dumps({**given, "workers": 1})]
    checkpoint = run.path / "actor" / "actor-1" / "checkpoint.pt"

    def running() -> list[str]:
        return [row.command for row in _table() if str(browsers) in row.command]

    with programs.start(command, torch=True, env=environment) as process:
        while not checkpoint.exists():
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        assert running()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    before = rows(run, "rollouts")
    limit = time.monotonic() + 60
    while running():
        assert time.monotonic() < limit
        time.sleep(0.05)

    metrics = run_train_online(run, TrainOnlineConfig.model_validate(given), Silent()).metrics
    assert (metrics.steps, metrics.ended, metrics.episodes, metrics.failed) == (2, "steps", 16, 0)
    assert metrics.updates > 0
    assert [point.success for point in metrics.curve] == [None, None]
    assert all(point.reward is not None and 0 < point.reward < 1 for point in metrics.curve)
    assert metrics.validation is not None, "the mean reward, as no task counts as solved"
    dialogues, scores = rows(run, "rollouts"), {row["id"]: row["reward"] for row in rows(run, "scores")}
    assert dialogues[: len(before)] == before, "no dialogue is played twice"
    assert len(dialogues) == len({row["id"] for row in dialogues}) == 16
    worth = {page: {scores[row["id"]] for row in dialogues if row["answer"] == page} for page in PAGES}
    assert worth[PAGES[1]] == {1.0}
    assert max(worth[PAGES[0]]) < 1
    said = [[turn["content"] for turn in row["dialogue_history"]] for row in dialogues]
    replies = {human for _, page, human, _ in said if page == PAGES[0]}
    assert replies == {f"The background of the page should be {COLOURS[1]}."}
    pages = {text for texts in said for text in texts if BEGIN in text}
    references = {row["task"]["ground_truth"] for row in dialogues}
    kept = len(list((run.path / "screenshots").rglob("*.png")))
    assert kept <= len(pages) + len(references) + 1, "each page once, and the reference of the validation"


def painted(html: str) -> Screenshot:
    if "<hang>" in html:
        raise RenderFailed("timeout", "The page was not done within 15 seconds.")
    return Screenshot(picture(COLOURS.index(next(colour for colour in COLOURS if colour in html))), 640, 480, ())


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, RenderSettings]]:
    """The pools that were opened: the number of browsers, and the settings of rendering."""
    found: list[tuple[int | None, RenderSettings]] = []

    class Painted:
        async def shoot(self, html: str) -> Screenshot:
            return painted(html)

    @asynccontextmanager
    async def browsers(store: Path, count: int | None, settings: RenderSettings) -> AsyncIterator[Painted]:
        found.append((count, settings))
        yield Painted()

    monkeypatch.setattr("sweet.render.browsers.open_browsers", browsers)
    monkeypatch.setattr("sweet.render.requirements.find_firefox", lambda: None)
    return found


def test_a_vision_model_plays_the_human_and_one_pool_shows_all_pages(
    pools: list[tuple[int | None, RenderSettings]], writer: str, tmp_path: Path
) -> None:
    run, server = run_of(tmp_path), ChatServer("eyes", lambda body: said("I have another colour in mind."))
    with server.running() as url:
        given = options(writer, tmp_path, steps=2, window="800x600", workers=3, sim="eyes", sim_url=[url])
        metrics = run_train_online(run, TrainOnlineConfig.model_validate(given), Silent()).metrics
    assert pools == [(3, RenderSettings(width=800, height=600))]
    assert metrics.human_completion_tokens > 0
    assert len(server.asked) == 1 + 16, "after a trial, once in each dialogue of two turns"
    found = {artifact.kind: artifact.meta for artifact in run.manifest().artifacts}
    assert (found["rollouts"]["window"], found["rollouts"]["pictures"]) == ("800x600", "placeholder")
    assert found["scores"]["scorer"] == f"{Pixels.name}+800x600"


def test_a_training_is_not_resumed_with_another_similarity(
    pools: list[tuple[int | None, RenderSettings]], writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default one, as if another had come to the machine."""
    run, given = run_of(tmp_path), options(writer, tmp_path, steps=1, similarity=None)
    run_train_online(run, TrainOnlineConfig.model_validate(given), Silent())
    before = run.manifest().artifacts
    monkeypatch.setattr(Pixels, "name", "other-1")
    with pytest.raises(UsageError, match="scored by pixels-1 so far, and would be scored by other-1"):
        run_train_online(run, TrainOnlineConfig.model_validate(given), Silent())
    assert [artifact.id for artifact in run.manifest().artifacts] == [artifact.id for artifact in before]


def test_a_task_whose_reference_does_not_load_teaches_nothing(
    pools: list[tuple[int | None, RenderSettings]], writer: str, tmp_path: Path
) -> None:
    given = options(writer, tmp_path, steps=1, tasks_per_step=4)
    tasks = Path(given["tasks"])
    broken = {"id": "broken", "problem_description": "A page.", "ground_truth": "<html><hang></html>", "split": "train"}
    tasks.write_text(tasks.read_text() + json.dumps(broken) + "\n")
    run = run_of(tmp_path)
    metrics = run_train_online(run, TrainOnlineConfig.model_validate(given), Silent()).metrics
    assert (metrics.episodes, metrics.failed) == (16, 0)
    invalid = [row for row in rows(run, "scores") if row["outcome"] == "invalid"]
    assert [row["reward"] for row in invalid] == [None] * 4
    assert {row["task_id"] for row in invalid} == {"broken"}
    assert metrics.reward is not None


@pytest.mark.parametrize(
    ("changes", "what", "where"),
    [
        ({"agent": "micro"}, "writes no pages", "--agent micro"),
        ({"human": "spec", "sim": "eyes"}, "sees pages", "--human spec"),
        ({"sim": "eyes", "local_engine": "embedded"}, "must see pages", "--sim eyes"),
        ({"persona": ["unsure"]}, "unsure", "--persona unsure"),
        ({"task": "code", "tasks": "micro", "agent": "micro"}, "does not apply", "--similarity"),
        (
            {"task": "code", "tasks": "micro", "agent": "micro", "similarity": None, "window": "800x600"},
            "no pages to render",
            "--window",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_played(
    pools: list[tuple[int | None, RenderSettings]],
    writer: str,
    tmp_path: Path,
    changes: dict[str, Any],
    what: str,
    where: str,
) -> None:
    run = Run.create(tmp_path / "run", changes.get("task", "html"))
    with pytest.raises(UsageError, match=what) as error:
        run_train_online(run, TrainOnlineConfig.model_validate(options(writer, tmp_path) | changes), Silent())
    assert error.value.where == where
    assert not pools
    assert not run.manifest().attempts


def test_a_machine_without_firefox_can_plan_a_training_and_not_run_it(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise UsageError("There is no Firefox.")

    monkeypatch.setattr("sweet.render.requirements.find_firefox", missing)
    config = TrainOnlineConfig.model_validate(options(writer, tmp_path))
    work = plan_train_online(None, config, Silent()).work
    assert work.dialogues == 24
    with pytest.raises(UsageError, match="no Firefox"):
        run_train_online(run_of(tmp_path), config, Silent())
