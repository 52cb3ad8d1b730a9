"""A training that is resumed learns from the weights that its first attempt computed, to the last bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.training.checkpoints import EXAMPLES
from sweet.training.config import TrainActorConfig
from sweet.training.stage import run_train_actor
from tests.packages import write_package
from tests.stages.counting import Copying
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train import weights

RULE = """
import os

from sweet.credit.base import Credit
from sweet.credit.istar import IStar

class Noisy(IStar):
    name = "noisy"

    def credit(self, batch, models):
        noise = float(os.environ["NOISE"])
        found = super().credit(batch, models)[int(os.environ["LEFT_OUT"]):]
        return [Credit(one.of, policy={turn: value + noise for turn, value in one.policy.items()}) for one in found]
"""
"""istar, whose numbers are others each time they are computed, as those of several threads are."""


@pytest.fixture(scope="module")
def began(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run with a training, and beside it what a kill after its checkpoint would have left."""
    folder = tmp_path_factory.mktemp("began")
    with pytest.MonkeyPatch.context() as patch:
        site = folder / "site"
        for path in write_package(site, "sweet-noisy", "", {"noisy": "sweet_noisy_rule:Noisy"}, group="sweet.credit"):
            patch.syspath_prepend(path)
        (site / "sweet_noisy_rule.py").write_text(RULE)
        compute(patch)
        run = make_run(folder, make_agent(folder / "agent"), tasks=3)
        copying = Copying(run, 4, "train-actor")
        run_train_actor(run, config(), copying)
        copying.killed()
        yield run


@pytest.fixture
def stopped(began: Run, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(began.path.with_name("killed"), tmp_path / "run"))


def compute(patch: pytest.MonkeyPatch, noise: float = 0.0, left_out: int = 0) -> None:
    patch.setenv("NOISE", str(noise))
    patch.setenv("LEFT_OUT", str(left_out))


def config(**more: object) -> TrainActorConfig:
    options = {"algorithm": "noisy", "epochs": 2, "batch": 4, "lr": 1e-3, "save_every": 2, "device": "cpu"}
    return TrainActorConfig.model_validate(options | {"rule_option": ["reward-batch=4", "reward-lr=2e-3"]} | more)


def test_a_resumed_training_learns_from_the_weights_of_its_first_attempt(
    began: Run, stopped: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(monkeypatch, noise=0.5)
    again = run_train_actor(stopped, config(resume=True), Silent())
    assert again.artifacts[0].id == "actor-1"
    whole = began.artifact("actor-1")
    first, second = began.file(whole), stopped.file(again.artifacts[0])
    assert torch.equal(weights(first), weights(second))
    assert reward_loss(stopped) == reward_loss(began) is not None
    assert not (second / EXAMPLES).exists()
    other = run_train_actor(stopped, config(), Silent())
    assert not torch.equal(weights(first), weights(stopped.file(other.artifacts[0]))), "the noise is not small"


def reward_loss(run: Run) -> object:
    """That of the run's last attempt."""
    return run.manifest().attempts[-1].metrics["reward_loss"]


def test_a_training_without_a_checkpoint_or_record_begins_again(stopped: Run) -> None:
    (stopped.path / "actor" / "actor-1" / EXAMPLES).unlink()
    again = run_train_actor(stopped, config(resume=True), Silent())
    assert again.artifacts[0].id == "actor-1"


@pytest.mark.parametrize(
    "damage", ["{", '{"examples": []}', '{"examples": [{}], "reward": null, "digest": ""}', "other"]
)
def test_a_record_that_does_not_fit_is_refused(stopped: Run, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    path = stopped.path / "actor" / "actor-1" / EXAMPLES
    if damage == "other":
        compute(monkeypatch, left_out=1)
    else:
        json.loads(path.read_text())
        path.write_text(damage)
    with pytest.raises(UsageError, match=r"other examples|cannot be read") as error:
        run_train_actor(stopped, config(resume=True), Silent())
    assert error.value.where == str(path)
    assert "without" in str(error.value.fix)
