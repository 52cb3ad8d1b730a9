"""PPO by turn and by token: advantages and goals by hand, one ratio a turn, and the value function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from sweet.credit.base import Batch, Credit, RewardTraining, TurnLogprobs
from sweet.credit.ppo import PPO
from sweet.errors import UsageError
from sweet.learn.components import Objective, PolicyGradient
from sweet.learn.engine import Engine
from sweet.learn.head import attach_head, get_head
from sweet.learn.logprobs import Scorer
from sweet.learn.objectives import policy_gradient
from sweet.learn.tokens import ChatEncoder
from sweet.stages.base import Silent
from sweet.tasks.trajectory import Trajectory
from sweet.training.config import TrainActorConfig
from sweet.training.examples import DialogueEncoder
from sweet.training.reward_model import RewardModel
from sweet.training.stage import plan_train_actor
from sweet.training.starting_policy import StartingPolicy
from tests.credit.test_token_terms import with_ids
from tests.credit.test_turn_rules import by_turn, make_batch
from tests.credit.unasked import Unasked
from tests.learn.builders import TEMPLATES, build_model, build_tokenizer, build_trajectory
from tests.stages.learn_runs import make_agent, make_run

VALUES: dict[str, dict[int, tuple[float, ...]]] = {"a": {1: (0.5, 0.7), 3: (0.6,)}, "b": {1: (0.2, 0.9, 0.9)}}


class Valued(Unasked):
    """Models whose value function says the given numbers before each token."""

    def __init__(self, values: Mapping[str, Mapping[int, tuple[float, ...]]]) -> None:
        self.known = values
        self.trained: list[tuple[list[Credit], Objective, RewardTraining]] = []

    def logprobs(self, model: Any, dialogues: Sequence[Trajectory], **more: Any) -> Any:
        assert model == "reward"
        assert not self.trained, "advantages are by the values before the training"
        return {
            one.id: {turn: TurnLogprobs(values) for turn, values in self.known[one.id].items()} for one in dialogues
        }

    def train_reward(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining
    ) -> None:
        self.trained.append((list(credits), objective, settings))


def test_by_turn_the_value_of_a_state_is_that_before_its_first_token() -> None:
    models, batch = Valued(VALUES), make_batch(a=(2, 1.0), b=(1, 0.0))
    found = by_turn(PPO(gamma=0.5, gae_lambda=0.5, std=False, value_epochs=3).credit(batch, models))
    # Errors of a: 0.5 * 0.6 - 0.5 = -0.2 and 1 - 0.6 = 0.4; of b: 0 - 0.2. Advantages -0.2 + 0.25 * 0.4, 0.4, -0.2.
    raw = {("a", 1): -0.1, ("a", 3): 0.4, ("b", 1): -0.2}
    assert found == pytest.approx({key: value - 0.1 / 3 for key, value in raw.items()})
    [(credits, objective, settings)] = models.trained
    goals = {(credit.of, turn): goal for credit in credits for turn, goal in credit.goals.items()}
    assert goals == pytest.approx({("a", 1): 0.4, ("a", 3): 1.0, ("b", 1): 0.0}), "advantage and value"
    assert (objective.values, objective.beta, settings) == (True, None, RewardTraining(3, 32, None))


def test_by_token_each_token_is_an_action() -> None:
    models, batch = Valued(VALUES), make_batch(a=(2, 1.0), b=(1, 0.0))
    found = by_turn(PPO(level="token", gamma=1.0, gae_lambda=1.0, std=False).credit(batch, models))
    raw = {("a", 1): [0.5, 0.3], ("a", 3): [0.4], ("b", 1): [-0.2, -0.9, -0.9]}  # the reward less the value
    mean = -0.8 / 6
    assert {key: pytest.approx([value - mean for value in row]) for key, row in raw.items()} == found
    [(credits, _, _)] = models.trained
    assert credits[0].goals == {1: pytest.approx([1.0, 1.0]), 3: pytest.approx([1.0])}


def test_the_defaults_by_turn_are_those_of_the_paper() -> None:
    models = Valued({"a": {1: (0.0, 0.0), 3: (0.0,)}})
    found = by_turn(PPO(std=False).credit(make_batch(a=(2, 1.0)), models))
    assert found["a", 3] - found["a", 1] == pytest.approx(1 - 0.99 * 0.9)
    levels: list[tuple[Any, bool]] = [("turn", True), ("token", False)]
    for level, by_turn_ in levels:
        policy = PPO(level=level).objective(0.1, 0.0, "paper").policy
        assert policy is not None
        assert policy.by_turn == by_turn_


def test_a_turn_has_one_ratio_and_is_clipped_as_one() -> None:
    policy = torch.tensor([-0.9, -1.8, -1.0], requires_grad=True)
    sampled, turns = torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([4, 4, 7])
    advantages, settings = torch.tensor([1.0, 1.0, -2.0]), PolicyGradient(0.2, 0.2)
    found = policy_gradient(policy, sampled, advantages, settings, turns)
    # exp(0.1 + 0.2) is above 1.2, though each token's ratio of exp(0.1) is not, nor that of exp(0.2) by much.
    assert found.losses.tolist() == pytest.approx([-1.2, 0.0, 2.0])
    assert (int(found.clipped), int(found.masked)) == (2, 0)
    (gradient,) = torch.autograd.grad(found.losses.sum(), policy)
    assert gradient.tolist() == pytest.approx([0.0, 0.0, 2.0])
    inside = policy_gradient(policy, policy.detach(), advantages, settings, turns)
    (gradient,) = torch.autograd.grad(inside.losses.sum(), policy)
    assert gradient.tolist() == pytest.approx([-1.0, -1.0, 2.0]), "at a ratio of 1 as by token"
    assert int(policy_gradient(policy, sampled - 1.0, advantages, settings, turns).masked) == 2, "exp(2.3) is above 8"


def test_the_value_function_reads_the_state_before_a_token_and_learns_its_goal() -> None:
    tokenizer = build_tokenizer(TEMPLATES["chatml"])
    encoder = DialogueEncoder(ChatEncoder(tokenizer), "paper", None)
    model = build_model(len(tokenizer))
    attach_head(model, seed=1)
    engine = Engine(model, 1.0)
    engine.scorer.computes_logprobs = False
    reward = RewardModel(engine, encoder, 5e-4, token_budget=300)
    models = StartingPolicy(encoder, partial(Scorer, build_model(len(tokenizer))), 4096, reward=reward)
    dialogues = [with_ids(build_trajectory(name, turns=2), tokenizer) for name in ("a", "b")]

    def values() -> dict[str, dict[int, tuple[float, ...]]]:
        found = models.logprobs("reward", dialogues)
        return {name: {turn: row.tokens for turn, row in turns.items()} for name, turns in found.items()}

    found = values()
    [sequence] = encoder.encode(dialogues[0], informed=False).sequences
    with torch.no_grad():
        states = model.base_model(input_ids=torch.tensor([sequence.ids])).last_hidden_state
        expected = get_head(model)(states)[0].tolist()  # type: ignore[misc]
    for span in sequence.spans:
        assert found["a"][span.turn] == pytest.approx(expected[span.start - 1 : span.stop - 1], abs=1e-4)
    batch = Batch({one.id: one for one in dialogues}, make_batch(a=(1, 0.0)).rule)
    credits = [Credit("a", goals={1: 0.5, 3: 1.0}), Credit("b", goals={3: [0.0] * len(found["b"][3])})]
    objective, settings = Objective(None, 0.0, values=True), RewardTraining(1, 2, 0.01)
    models.train_reward(batch, credits, objective, settings)
    errors = [found["a"][1][0] - 0.5, found["a"][3][0] - 1.0, *found["b"][3]]
    assert reward.figures is not None
    assert reward.figures["value_loss"] == pytest.approx(math.fsum(e * e for e in errors) / 2 / len(errors), rel=1e-3)
    for _ in range(40):
        models.train_reward(batch, credits, objective, settings)
    learned = values()
    assert (learned["a"][1][0], learned["a"][3][0]) == pytest.approx((0.5, 1.0), abs=0.15)


def test_recorded_dialogues_are_refused(tmp_path: Any) -> None:
    run = make_run(tmp_path, make_agent(tmp_path / "agent"), tasks=1)
    with pytest.raises(UsageError, match="that the training itself plays") as error:
        plan_train_actor(run, TrainActorConfig(algorithm="ppo", device="cpu"), Silent())
    assert error.value.fix == "sweet train-online --algorithm ppo"
