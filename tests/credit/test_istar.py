"""Implicit step rewards by hand, and trainings with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sweet.credit.base import Batch, Credit, RewardTraining, TurnLogprobs
from sweet.credit.groups import EPSILON
from sweet.credit.istar import IStar
from sweet.errors import SweetError, UsageError
from sweet.learn.components import Objective
from sweet.learn.rows import Preference
from sweet.stages.base import Silent
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig
from sweet.training.stage import plan_train_actor, run_train_actor
from tests.credit.unasked import Unasked
from tests.learn.builders import build_trajectory
from tests.stages.counting import Copying
from tests.stages.learn_runs import make_agent, make_run
from tests.training.test_train import weights

RULE = task_kind("code").rewards
REWARDS = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5}
TASKS = {"a": "one", "b": "one", "c": "two", "d": "two"}
GAINS = {"a": {1: [1.0, 2.0], 3: [0.5, 0.5]}, "b": {1: [-1.0, 0.0], 3: [-1.0, 2.0]}, "c": {1: [2.0]}, "d": {1: [0.0]}}
"""log(reward model / mu) of each token."""


class Learned(Unasked):
    """Models of which the reward model says the given log-ratios, after it was trained."""

    def __init__(self, gains: dict[str, dict[int, list[float]]]) -> None:
        self.gains = gains
        self.trained: list[tuple[list[Credit], Objective, RewardTraining]] = []

    def logprobs(
        self, model: Any, dialogues: Sequence[Trajectory], *, informed: bool = False, top: int = 0
    ) -> dict[str, dict[int, TurnLogprobs]]:
        assert self.trained, "the reward model learns first"
        assert not informed, "no model sees the training-time information"
        gain = {"reward": 1.0, "sampler": 0.0}[model]
        return {
            one.id: {
                turn: TurnLogprobs(tuple(-3.0 + gain * value for value in values))
                for turn, values in self.gains[one.id].items()
            }
            for one in dialogues
        }

    def train_reward(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining
    ) -> None:
        self.trained.append((list(credits), objective, settings))


def make_batch(rewards: dict[str, float] = REWARDS) -> Batch:
    dialogues = {name: build_trajectory(name, turns=2, task=TASKS[name]) for name in rewards}
    return Batch(dialogues, RULE, rewards=rewards, source="scores-1")


def by_turn(credits: Sequence[Credit]) -> dict[tuple[Any, int], Any]:
    return {(credit.of, turn): value for credit in credits for turn, value in credit.policy.items()}


ONE = {("a", 1): 0.15, ("a", 3): 0.05, ("b", 1): -0.05, ("b", 3): 0.05}
"""0.05 times the sums of a task's log-ratios; their mean is 0.05, and their variance 0.02 / 3."""


def test_a_turn_s_advantage_is_that_of_its_dialogue_and_its_distance_to_the_group() -> None:
    found = by_turn(IStar(std=False).credit(make_batch(), Learned(GAINS)))
    assert found == pytest.approx(
        {("a", 1): 0.6, ("a", 3): 0.5, ("b", 1): -0.6, ("b", 3): -0.5, ("c", 1): 0.05, ("d", 1): -0.05}
    )
    half = by_turn(IStar(std=False, weight=0.5, reward_beta=0.1).credit(make_batch(), Learned(GAINS)))
    assert half == pytest.approx(found), "twice the rewards at half of their weight"


def test_without_weight_it_is_the_dialogue_s_own() -> None:
    found = by_turn(IStar(weight=0.0).credit(make_batch(), Learned(GAINS)))
    high = 0.5 / (0.5**0.5 + EPSILON)
    assert found == pytest.approx({("a", 1): high, ("a", 3): high, ("b", 1): -high, ("b", 3): -high})
    others = by_turn(IStar(weight=0.0, episode="rloo").credit(make_batch(), Learned(GAINS)))
    assert others == {("a", 1): 1.0, ("a", 3): 1.0, ("b", 1): -1.0, ("b", 3): -1.0}


@pytest.mark.parametrize(("step", "scale"), [("std", 1 / ((0.02 / 3) ** 0.5 + EPSILON)), ("leave-one-out", 4 / 3)])
def test_a_turn_s_reward_in_standard_deviations_or_against_the_others(step: Any, scale: float) -> None:
    found = by_turn(IStar(step=step, std=False).credit(make_batch(), Learned(GAINS)))
    episode = {"a": 0.5, "b": -0.5}
    for (name, turn), reward in ONE.items():
        assert found[name, turn] == pytest.approx(episode[name] + scale * (reward - 0.05))
    if step == "leave-one-out":  # 0.15 against the mean of 0.05, -0.05 and 0.05
        assert found["a", 1] == pytest.approx(0.5 + 0.15 - 0.05 / 3)


def test_every_two_dialogues_of_a_task_with_different_rewards_are_a_couple() -> None:
    rewards = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5}
    dialogues = {name: build_trajectory(name, turns=2, task="one") for name in rewards}
    models = Learned(GAINS)
    batch = Batch(dialogues, RULE, rewards=rewards)
    IStar(reward_lr=1e-4, reward_epochs=3, reward_batch=4).credit(batch, models)
    [(credits, objective, settings)] = models.trained
    couples = [(of.chosen, of.rejected) for of in (credit.of for credit in credits) if isinstance(of, Preference)]
    assert couples == [("a", "c"), ("a", "d"), ("a", "b"), ("c", "b"), ("d", "b")]
    assert (objective.beta, objective.nll, objective.normalize) == (0.05, 0.0, "none")
    assert settings == RewardTraining(3, 4, 1e-4)


def test_equal_rewards_leave_nothing_to_learn() -> None:
    models = Learned(GAINS)
    with pytest.raises(SweetError, match="equal rewards"):
        IStar().credit(make_batch({"c": 0.5, "d": 0.5}), models)
    assert models.trained == []


def test_a_training_is_planned_learns_and_resumes_to_the_same_weights(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=3)
    config = TrainActorConfig(
        algorithm="istar",
        rule_option=["reward-epochs=2", "reward-batch=4", "reward-lr=2e-3", "step=std"],
        epochs=2,
        batch=4,
        lr=1e-3,
        save_every=2,
        device="cpu",
    )
    planned = plan_train_actor(run, config, Silent()).work
    assert (planned.examples, planned.steps) == (9, 6)
    copying = Copying(run, 3, "train-actor")
    whole = run_train_actor(run, config, copying)
    assert whole.metrics.reward_preferences == 9
    assert whole.metrics.reward_accuracy is not None
    assert whole.metrics.reward_accuracy > 0.5
    killed = copying.killed()
    again = run_train_actor(killed, config.model_copy(update={"resume": True}), Silent())
    assert torch.equal(weights(run.file(whole.artifacts[0])), weights(killed.file(again.artifacts[0])))
    rows = [json.loads(line) for line in (run.path / "logs" / "train-actor-1.jsonl").read_text().splitlines()]
    assert rows[0]["ratio"] == pytest.approx(1, abs=1e-3), "the policy does not change while the reward model learns"
    grpo = run_train_actor(run, config.model_copy(update={"algorithm": "grpo", "rule_option": []}), Silent())
    assert not torch.equal(weights(run.file(whole.artifacts[0])), weights(run.file(grpo.artifacts[0])))


def test_an_adapter_s_reward_model_is_an_adapter_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=3)
    options = ["reward-epochs=4", "reward-batch=4"]
    config = TrainActorConfig(algorithm="istar", rule_option=options, lora=4, lr=5e-3, epochs=1, batch=4, device="cpu")
    result = run_train_actor(run, config, Silent())
    assert result.metrics.reward_accuracy is not None
    assert result.metrics.reward_accuracy > 0.5
    assert result.metrics.trained_parameters < result.metrics.parameters  # type: ignore[operator]
    assert not torch.equal(weights(run.file(result.artifacts[0])), weights(tmp_path / "agent"))


def test_several_processes_cannot_train_a_second_model(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=2)
    config = TrainActorConfig(algorithm="istar", engine="deepspeed", devices=2, device="cpu")
    with pytest.raises(UsageError, match="trains a second model") as error:
        plan_train_actor(run, config, Silent())
    assert "torch" in str(error.value.fix)
