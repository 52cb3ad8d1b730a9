"""Html dialogues in a real Firefox: the scripted writer shows pages, the scripted human looks at them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sweet.errors import UsageError
from sweet.render.browsers import open_browsers
from sweet.render.firefox import find_firefox
from sweet.render.page import RenderSettings, Screenshot, page_key
from sweet.render.store import SCREENSHOTS, ScreenshotStore
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.html.page import extract_page
from sweet.tasks.html.view import Part, View, view_of
from sweet.tasks.html.writer import as_page
from sweet.tasks.trajectory import Trajectory
from tests import programs
from tests.tasks.html_pages import score

try:
    find_firefox()
except UsageError as error:
    pytest.skip(f"pages cannot be rendered here: {error.what}", allow_module_level=True)


def test_what_the_writer_means_is_what_is_seen(tmp_path: Path) -> None:
    meant = View(
        900,
        "#f3f4f6",
        (
            Part("box", 0, 0, 1280, 110, "#f59e0b"),
            Part("box", 40, 140, 300, 60, "#ffffff"),
            Part("image", 700, 160, 500, 300),
            Part("text", 40, 30, 400, 48, "#111827", "Corner & <Bakery>", 32, True),
            Part("text", 60, 160, 900, 48, "#b45309", "Open from six." + 5 * " Closed on Mondays.", 16),
        ),
    )

    async def shown() -> Screenshot:
        async with open_browsers(None, 1) as renderer:
            return await renderer.shoot(as_page(meant))

    seen = view_of(asyncio.run(shown()))
    assert (seen.height, seen.background) == (meant.height, meant.background)
    assert set(seen.parts) == set(meant.parts)


@pytest.mark.usefixtures("one_browser")
def test_pages_come_nearer_to_the_reference_turn_by_turn(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "html")
    config = RolloutConfig(
        task="html", tasks="pages", split="test", num_tasks=2, agent="scripted", temperature=0, max_turns=3
    )
    result = run_rollout(run, config, Silent())
    assert (result.metrics.episodes, result.metrics.turns, result.metrics.failed) == (2, 6, 0)
    store, settings = ScreenshotStore(run.path / SCREENSHOTS), RenderSettings()

    def view(page: str) -> View:
        found = store.get(page_key(page, settings))
        assert isinstance(found, Screenshot), "what the human saw is kept under the page's key"
        return view_of(found)

    for line in run.file(result.artifacts[0]).read_text().splitlines():
        played = Trajectory.model_validate(json.loads(line))
        pages = [extract_page(played.dialogue_history[turn].content) or "" for turn in played.agent_turns]
        assert played.answer == pages[-1]
        reference = view(played.task.ground_truth)
        first, second = (score(view(page), reference) for page in pages[:-1])
        assert first < second, "the last page is not looked at by the human"
        assert played.dialogue_history[2].content.startswith(("What is missing: ", "The background", "I do not want "))


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")
def test_ctrl_c_is_no_failure_of_the_browsers(tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to every process of the command, the one that drives the browsers included."""
    run = tmp_path / "run"
    words = "rollout run --task html --tasks pages --agent scripted --num-tasks 2 --concurrency 1 --max-turns 3"
    program = programs.start(
        [*programs.SWEET, *words.split()],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        limit = time.monotonic() + 90
        while not list(run.glob("screenshots/*/*.png")):
            assert program.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.02)
        os.killpg(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=90)
    assert program.returncode == 130, err
    assert "failed" not in err
    went_on = programs.run([*programs.SWEET, "rollout", "run", "--resume", "--json"], cwd=tmp_path)
    assert went_on.returncode == 0, went_on.stderr
    metrics = json.loads(went_on.stdout)["metrics"]
    assert (metrics["episodes"], metrics["failed"]) == (2, 0)
