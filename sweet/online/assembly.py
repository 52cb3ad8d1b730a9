"""Puts together what learns in an online training: in the process of the command, or in each of several ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sweet.credit.base import CreditRule, Hyperparameters
from sweet.learn.engine import CLIP, Engine
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Trainee
from sweet.llm.pretrained import load_tokenizer
from sweet.online.config import TrainOnlineConfig
from sweet.online.learner import Learner, LearnerSettings
from sweet.tasks.scores import RewardRule
from sweet.training.examples import DialogueEncoder
from sweet.training.model import StartingModel, starting_model
from sweet.training.reward_model import RewardModel
from sweet.training.run_critic import RunCritic


def policy_to_train(config: TrainOnlineConfig, base: str, load: Callable[..., Trainee]) -> StartingModel:
    """Return the model to train; see `starting_model`."""
    encoder = ChatEncoder(load_tokenizer(base), config.turn_tokens or "both", config.effort)
    return starting_model(config, base, encoder, load, one_process=config.devices is None)


@dataclass(frozen=True)
class Assembly:
    """What a learner is made of.

    Attributes:
        rewards: what the rewards of this kind of task mean.
        source: id of the rollouts.
        critic: answers for the critic of the run; None for a rule that asks none.
        load: loads a model with its weights, as for `policy_to_train`.
        make_engine: returns the engine of such a model, given the maximum norm of a gradient.
    """

    config: TrainOnlineConfig
    rule: CreditRule
    used: Hyperparameters
    rewards: RewardRule
    source: str
    critic: RunCritic | None
    load: Callable[..., Trainee]
    make_engine: Callable[[Any, float], Engine] = Engine

    def learner(self, model: StartingModel) -> Learner:
        """Return what trains `model`, which has its weights."""
        config = self.config
        budget, share = model.token_budget(config.micro_batch_tokens), config.packing != "plain"
        replays = config.packing == "segments"
        settings = LearnerSettings(config.epochs or 1, config.batch, config.seed, budget, share, replays)

        def load_reward(encoder: DialogueEncoder) -> RewardModel:
            engine = self._engine(self.load(model.trainee.start, tokenizer=model.encoder.tokenizer))
            return RewardModel(engine, encoder, self.used.lr, token_budget=budget, seed=config.seed, share=share)

        return Learner(
            model,
            self._engine(model.trainee),
            self.rule,
            self.rule.objective(config.beta, self.used.nll, "paper"),
            self.used,
            settings,
            self.rewards,
            self.source,
            self.critic,
            load_reward,
        )

    def _engine(self, trainee: Trainee) -> Engine:
        trainee.model.eval()  # with dropout, policy and sampler would differ even with equal weights
        return self.make_engine(trainee.model, CLIP)
