"""The models that a credit rule may ask in an online training (`sweet.credit.base.Which`), all in this process.

    policy   the model that is trained, with its weights of now
    start    a frozen copy of the weights at the start; with LoRA the trained model without its adapter
    average  the moving average of the policy's weights
    reward   a second model, trained in turns with the policy
    critic   that of the run; it does not change

Start and average are exchanged with the policy's own weights while they are asked (`sweet.learn.average`). Several
ranks ask together, and each computes a share of the forward passes. Average and reward model change from step to step,
so their state belongs to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweet.credit.base import CreditRule, Which
from sweet.errors import UsageError
from sweet.learn.average import WeightAverage
from sweet.learn.engine import Engine
from sweet.learn.logprobs import Scorer
from sweet.learn.lora import base_alone
from sweet.learn.trainee import Trainee
from sweet.training.examples import DialogueEncoder
from sweet.training.reward_model import RewardFigures, RewardModel
from sweet.training.run_critic import RunCritic
from sweet.training.starting_policy import AskedModels


class LiveModels(AskedModels):
    """The models of a policy that is being trained.

    Args:
        trainee: the policy, still with the weights at the start.
        engine: trains the policy and runs its forward passes.
        budget: tokens of one forward pass.
        critic: answers for the run's critic; None where the rule asks none.
        load_reward: returns the reward model; called only for a rule that trains one.
    """

    def __init__(
        self,
        encoder: DialogueEncoder,
        trainee: Trainee,
        engine: Engine,
        budget: int,
        rule: CreditRule,
        critic: RunCritic | None,
        load_reward: Callable[[DialogueEncoder], RewardModel],
    ) -> None:
        super().__init__(encoder, budget, critic, engine if engine.world > 1 else None)
        self._network, self._policy = trainee.model, engine.scorer
        self._start = WeightAverage(engine, 0.0) if trainee.start.lora is None else None
        self._average = None if rule.average_rate is None else WeightAverage(engine, rule.average_rate)
        self._reward = load_reward(encoder) if rule.trains_reward else None

    @contextmanager
    def open(self, model: Which) -> Iterator[Scorer]:
        """See `AskedModels.open`.

        Raises:
            UsageError: the rule asks for a model that it does not announce.
        """
        if model == "reward":
            yield self.reward_model().scorer
        elif model == "average":
            if self._average is None:
                what = "The credit rule asks for the average of the policy's weights, and none is kept."
                raise UsageError(what, fix="return its rate as average_rate of the rule")
            with self._average.in_place():
                yield self._policy
        elif model == "start":
            with base_alone(self._network) if self._start is None else self._start.in_place():
                yield self._policy
        else:
            yield self._policy

    def reward_model(self) -> RewardModel:
        """See `AskedModels.reward_model`."""
        if self._reward is None:
            what = "The credit rule asks for a reward model, and none was prepared."
            raise UsageError(what, fix="set trains_reward = True in the rule")
        return self._reward

    @property
    def reward_figures(self) -> RewardFigures | None:
        """What the last training of the reward model did; None where there was none."""
        return None if self._reward is None else self._reward.figures

    def updated(self) -> None:
        """Follow an update of the policy's weights."""
        if self._average is not None:
            self._average.update()

    def state(self, folder: Path | None = None) -> dict[str, Any]:
        """See `sweet.learn.engine.OtherModels`."""
        average = None if self._average is None else self._average.state()
        reward = None if self._reward is None else self._reward.state(folder and folder / "reward")
        return {"average": average, "reward": reward}

    def load_state(self, state: dict[str, Any], folder: Path | None = None) -> None:
        """Restore what `state` returned and wrote."""
        if self._average is not None:
            self._average.load_state(state["average"])
        if self._reward is not None:
            self._reward.load_state(state["reward"], folder and folder / "reward")
