"""Exported packages: what they contain, which settings they take over, and that what plays them plays as a rollout."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.exporting import DataExportConfig, check_options
from sweet.environments.exporting import run_environment_export
from sweet.environments.settings import SETTINGS, EnvironmentSettings
from sweet.environments.world import open_world
from sweet.errors import InputError, UsageError
from sweet.render import browsers
from sweet.render.browsers import open_browsers
from sweet.rollouts.prepare import load_dialogues
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Task
from tests import programs
from tests.environments.conftest import TURNS, Played
from tests.online.page_writer import PAGES, write_tasks
from tests.render.real_browser import needs_firefox
from tests.stages.heard import Heard


def exported(run: Run | None, out: Path, **options: Any) -> Path:
    """Return the folder of the Python package."""
    config = DataExportConfig(**({"to": "verifiers", "out": out} | options))
    check_options(config)
    result = run_environment_export(run, config, Silent())
    return out / result.metrics.package


def tasks_of(settings: EnvironmentSettings) -> list[Task]:
    return load_dialogues(None, settings.rollout, Silent()).tasks


def test_a_package_has_the_tasks_and_the_settings_of_the_dialogues(played: Played, tmp_path: Path) -> None:
    package = exported(played.run, tmp_path / "env")
    settings = EnvironmentSettings.read(package)
    assert (settings.rollout.task, settings.rollout.max_turns, settings.rollout.sim) == ("code", TURNS, "scripted")
    assert settings.eval.scorer == "strict"
    tasks = tasks_of(settings)
    assert [task.id for task in tasks] == sorted(played.rewards)
    assert {task.id: task for task in tasks} == {found.task_id: found.task for found in played.trajectories}
    project = tomllib.loads((tmp_path / "env" / "pyproject.toml").read_text())["project"]
    assert project["name"] == package.name.replace("_", "-") == "sweet-env-code-micro"
    left = [file for file in tmp_path.rglob("*") if file.is_file() and "@" in file.read_text().replace("@-", "")]
    assert left == [], "a placeholder that was not filled"


@pytest.mark.parametrize("target", ["verifiers", "gymnasium", "openenv"])
def test_the_code_of_a_package_compiles(played: Played, tmp_path: Path, target: str) -> None:
    package = exported(played.run, tmp_path / "env", to=target, name="other")
    compile((package / "__init__.py").read_text(), "package", "exec")
    assert package.name == "sweet_env_other"


def test_a_world_plays_and_scores_as_a_rollout_and_an_evaluation_do(played: Played, tmp_path: Path) -> None:
    package = exported(played.run, tmp_path / "env")
    settings = EnvironmentSettings.read(package)

    async def replay() -> dict[str, float | None]:
        rewards = {}
        async with open_world(settings) as world:
            for recorded in played.trajectories:
                episode = world.episode(recorded.task)
                messages = await episode.start()
                for index in recorded.agent_turns:
                    assert messages == recorded.observation(index, messages[0].content)
                    following = await episode.reply(recorded.dialogue_history[index].said)
                    messages = following or []
                found = episode.trajectory
                assert found is not None
                assert messages == []
                assert (found.answer, found.outcome) == (recorded.answer, recorded.outcome)
                assert [turn.content for turn in found.dialogue_history] == [
                    turn.content for turn in recorded.dialogue_history
                ]
                rewards[recorded.task_id] = (await world.score(found)).reward
        return rewards

    assert asyncio.run(replay()) == played.rewards
    assert len(set(played.rewards.values())) >= 3, "rewards that a wrong scorer would not give by chance"


def test_dialogues_that_end_together_are_scored_together(played: Played, tmp_path: Path) -> None:
    package = exported(played.run, tmp_path / "env")
    settings = EnvironmentSettings.read(package)

    async def score() -> dict[str, float | None]:
        async with open_world(settings) as world:
            scores = await asyncio.gather(*(world.score(found) for found in played.trajectories))
        return {one.task_id: one.reward for one in scores}

    assert asyncio.run(score()) == played.rewards


def test_a_dialogue_that_is_stopped_has_no_answer(played: Played, tmp_path: Path) -> None:
    package = exported(played.run, tmp_path / "env")
    settings = EnvironmentSettings.read(package)

    async def play() -> tuple[str, float | None]:
        async with open_world(settings) as world:
            tasks = world.dialogues.tasks
            episode = world.episode(tasks[0])
            await episode.start()
            assert await episode.reply("How is it rounded?") is not None
            stopped = await episode.stop("token_limit", "enough")
            return stopped.outcome, (await world.score(stopped)).reward

    assert asyncio.run(play()) == ("token_limit", 0.0)


def test_a_dataset_needs_no_run(tmp_path: Path) -> None:
    package = exported(None, tmp_path / "env", tasks="micro", split="validation")
    settings = EnvironmentSettings.read(package)
    assert (settings.rollout.max_turns, settings.rollout.sim) == (10, "scripted")
    assert len(tasks_of(settings)) > 100


@needs_firefox
@pytest.mark.usefixtures("one_browser")
def test_human_and_scorer_of_pages_share_the_browsers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.render.requirements.ASSETS", ())
    opened = []

    def counted(*given: Any) -> Any:
        opened.append(given)
        return open_browsers(*given)

    monkeypatch.setattr(browsers, "open_browsers", counted)
    package = exported(None, tmp_path / "env", task="html", tasks=write_tasks(tmp_path / "tasks.jsonl"))
    settings = EnvironmentSettings.read(package, {"similarity": "pixels", "max_turns": 2})

    async def play() -> tuple[bool, float | None]:
        async with open_world(settings) as world:
            tasks = world.dialogues.tasks
            episode = world.episode(tasks[0])
            await episode.start()
            said = await episode.reply(f"```html\n{PAGES[0]}\n```")
            await episode.reply(f"```html\n{tasks[0].ground_truth}\n```")
            assert episode.trajectory is not None
            return bool(said), (await world.score(episode.trajectory)).reward

    assert asyncio.run(play()) == (True, 1.0)
    assert len(opened) == 1


def test_test_tasks_are_warned_of(played: Played, tmp_path: Path) -> None:
    heard = Heard()
    run_environment_export(played.run, DataExportConfig(to="verifiers", out=tmp_path / "env"), heard)
    assert "cannot be measured" in heard.warnings[0]


def test_a_human_that_cannot_play_these_tasks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    row = {"problem_description": "A function f().", "ground_truth": "def f(): return 1", "test_cases": {"a": "f()"}}
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match="speaks from a task's facts"):
        exported(None, tmp_path / "env", tasks=str(file))
    assert not list((tmp_path / "env").glob("*")), "nothing is left behind"
    package = exported(None, tmp_path / "env", tasks=str(file), sim="some-model", sim_url=["http://127.0.0.1:1/v1"])
    assert EnvironmentSettings.read(package).rollout.sim == "some-model"


def test_options_that_have_no_effect_are_refused(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"to": "verifiers", "out": tmp_path / "x", "tokenizer": "micro"},
        {"to": "verifiers", "out": tmp_path / "x", "include_thoughts": True},
        {"to": "verifiers"},
        {"to": "trl", "out": tmp_path / "x", "sim": "m"},
        {"tasks": "micro"},
        {"to": "verifiers", "out": tmp_path / "x", "split": "test"},
    ]
    for options in wrong:
        with pytest.raises(UsageError):
            check_options(DataExportConfig(**options))
    for name in ("Über", "../up", "a" * 70, "-x"):
        with pytest.raises(UsageError, match="name of a package"):
            exported(None, tmp_path / "env", tasks="micro", name=name)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    with pytest.raises(UsageError, match="not empty"):
        exported(None, tmp_path / "full", tasks="micro")


def test_settings_are_checked_where_they_are_read(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"rollout": {"max_turns": 0}}', '{"rollout": {"secret": 1}}', '{"rollout": {}, "a": 1}'):
        (tmp_path / SETTINGS).write_text(text)
        with pytest.raises(InputError) as raised:
            EnvironmentSettings.read(tmp_path)
        assert str(tmp_path) in str(raised.value.where)
    (tmp_path / SETTINGS).write_text('{"rollout": {"task": "code"}}')
    assert EnvironmentSettings.read(tmp_path, {"sim": None, "workers": 2}).eval.workers == 2
    with pytest.raises(InputError, match="workers"):
        EnvironmentSettings.read(tmp_path, {"workers": "many"})


def test_the_command(played: Played, tmp_path: Path) -> None:
    out = tmp_path / "env"
    done = programs.run(["-m", "sweet", "data", "export", played.run.path, "--to", "verifiers", "--out", out, "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["tasks"] == 8
    assert f"pip install -e {out}" in done.stderr
