"""The kind of task of a run: what is played in it, trained in it or imported into it is of that kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweet import api
from sweet.errors import UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.recipe import resolve, write_run
from sweet.rollouts.config import RolloutConfig
from sweet.runs.run import Run
from tests.cli.conftest import Program

COMMANDS = [["rollout"], ["play"], ["gateway", "--model", "scripted"], ["train-online"], ["train"]]


@pytest.fixture
def run(workplace: Path) -> Run:
    return Run.create(workplace / "shop", "orders")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_plays_the_tasks_of_the_run(sweet: Program, run: Run, words: list[str]) -> None:
    command, *options = words
    key = "train.task" if command == "train" else "task"
    for given in ([], ["--task", "orders"]):
        outcome = sweet(command, "shop", *options, *given, "--dry-run", "--json")
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["config"][key] == "orders"
    refused = sweet(command, "shop", *options, "--task", "desk", "--dry-run")
    assert refused.code == 2
    assert "The run is for tasks of the kind orders, not desk." in " ".join(refused.err.split())


def test_the_demo_of_another_kind_of_run_names_no_option_that_it_has_not(sweet: Program, run: Run) -> None:
    refused = sweet("demo", "shop")
    assert refused.code == 2
    assert "The run is for tasks of the kind orders, not code." in " ".join(refused.err.split())
    assert "--task" not in refused.err


def test_train_goes_on_with_a_run_of_any_kind(sweet: Program, workplace: Path) -> None:
    models = "".join(f'[{stage}]\nmodel = "micro"\n' for stage in ("train-critic", "train-actor"))
    (workplace / "mine.toml").write_text(f'[train]\ntask = "orders"\nagent = "scripted"\n{models}')
    run = Run.create(workplace / "mine", "orders")
    write_run(resolve(LoopConfig(recipe="mine.toml"), None), run.path)
    outcome = sweet("train", "mine", "--train-tasks", "2", "--eval-tasks", "2")
    assert "A new run: agent scripted, tasks orders" in outcome.err
    assert "of the kind" not in outcome.err
    assert Run.open("mine").manifest().of_kind("rollouts", "done")


def test_a_recipe_of_another_kind_is_refused(run: Run, workplace: Path) -> None:
    (workplace / "desk.toml").write_text('[train]\ntask = "desk"\n')
    with pytest.raises(UsageError, match="of the kind orders, not desk"):
        resolve(LoopConfig(recipe="desk.toml"), run.path)


def test_python_plays_the_tasks_of_the_run(run: Run) -> None:
    api.rollout(run, RolloutConfig(agent="scripted", num_tasks=2))
    with run.file(run.find("rollouts", None, needed_by="this test")).open() as rows:
        assert [json.loads(row)["task"]["id"].partition("-")[0] for row in rows] == ["orders"] * 2
    with pytest.raises(UsageError, match="of the kind orders, not desk"):
        api.rollout(run, RolloutConfig(task="desk", agent="scripted", num_tasks=2))


def test_dialogues_are_imported_as_those_of_the_run(sweet: Program, run: Run, workplace: Path) -> None:
    api.rollout(run, RolloutConfig(agent="scripted", num_tasks=2))
    assert sweet("data", "export", "shop", "--out", "out.jsonl").code == 0
    Run.create(workplace / "other", "orders")
    assert sweet("data", "import", "out.jsonl", "other").code == 0
    assert Run.open(workplace / "other").manifest().task == "orders"
    refused = sweet("data", "import", "out.jsonl", "other", "--task", "desk")
    assert "of the kind orders, not desk" in " ".join(refused.err.split())
