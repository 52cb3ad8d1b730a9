"""The packaged recipes of the paper's rows: every table is valid, and their servers fit the GPUs that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.pipeline.config import LoopConfig
from sweet.pipeline.recipe import TABLES, Recipe, resolve
from sweet.pipeline.servers import ROLES, place
from sweet.rollouts.sides import rendering_of
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from sweet.training.config import check_critic_options
from sweet.training.hyperparameters import defaults

ROWS = ("paper-code-8b", "paper-code-70b", "paper-html")


def read(row: str) -> tuple[Recipe, dict[str, Any]]:
    """The recipe, and the configurations of its stages."""
    recipe = resolve(LoopConfig(recipe=row), None)
    return recipe, {name: config.model_validate(recipe.of(name)) for name, config in TABLES.items()}


@pytest.mark.parametrize(
    ("row", "dialogues", "critic"),
    [("paper-code-8b", 15_000, "critic"), ("paper-code-70b", 15_000, "critic"), ("paper-html", 6_000, "regression")],
)
def test_the_settings_are_those_of_the_paper(row: str, dialogues: int, critic: str) -> None:
    recipe, tables = read(row)
    train, kind = recipe.train, task_kind(recipe.train.task)
    assert kind.has_dataset(str(train.tasks))
    assert (train.train_tasks or 0) * train.samples == dialogues
    assert (tables["rollout"].max_turns, tables["rollout"].temperature, tables["rollout"].max_tokens) == (10, 1, 1024)
    assert (tables["rank"].candidates, tables["rank"].fraction) == (16, 0.1)
    assert (tables["pair"].pairs, tables["pair"].strategy) == (4, "random-halves")
    check_critic_options(tables["train-critic"])
    assert tables["train-critic"].holdout == 0, "every preference is learned"
    assert tables["eval"].scorer == "upstream"
    # Ten turns with eleven pictures of 512 tokens do not fit the paper's length.
    critic_length = 16384 if kind.visual else 8192
    for table, learner, epochs, length in (
        ("train-critic", critic, kind.dialogue_epochs, critic_length),
        ("train-actor", "sweet", 1, 16384),
    ):
        config, paper = tables[table], defaults(learner, large=True)
        assert (config.lr, config.batch, config.beta, config.shuffle) == (paper.lr, paper.batch, 0.1, "examples")
        assert (config.nll or 0, config.epochs, config.max_length) == (paper.nll, epochs, length)


def test_pages_are_played_and_scored_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tables = read("paper-html")
    played, kind = tables["rollout"], task_kind("html")
    monkeypatch.setattr("sweet.render.window.asset_folder", lambda: tmp_path)
    with pytest.raises(UsageError, match="photograph of pages has not been downloaded"):
        rendering_of(kind, played, Silent())
    monkeypatch.setattr("sweet.render.window.photo_rule", lambda _folder: "photo@0123456789ab")
    rendered = rendering_of(kind, played, Silent())
    assert rendered is not None
    assert (rendered.width, rendered.height, rendered.pictures) == (1366, 682, "photo@0123456789ab")
    assert (played.protocol, tables["eval"].scorer) == ("upstream", "upstream")
    assert (tables["eval"].window, tables["eval"].pictures) == (None, None), "those of the scorer, which are the same"


@pytest.mark.parametrize("row", ROWS)
def test_the_servers_fit_a_node(row: str) -> None:
    recipe, tables = read(row)
    servers = recipe.servers.by_role()
    in_order = {role: servers[role] for role in ROLES if role in servers}
    playing, ranking = place(range(8), in_order), place(range(8), {"agent": in_order["agent"]}, 1)
    assert recipe.train.rounds == 1
    assert list(in_order) == ["sim", "agent"]
    assert sum(map(len, playing.values())) == 8, "all GPUs are used"
    assert 0 not in ranking["agent"]
    if row == "paper-code-70b":
        assert 8 - len(ranking["agent"]) == 4, "282 GB of critic and reference are divided among four GPUs of 80 GB"
    trainings = [tables["train-critic"], tables["train-actor"]]
    assert all(str(config.hostfile) == ("slurm" if row == "paper-code-70b" else "None") for config in trainings)
