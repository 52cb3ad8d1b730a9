"""The models that a credit rule may ask in a training on recorded dialogues.

It computes all weights before its first step. Policy, start and average are then the same model, and a reward model is
trained on all dialogues before it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import count

from sweet.credit.base import Batch, Credit, CreditRule, RewardTraining, TurnLogprobs, Which
from sweet.errors import UsageError
from sweet.hints import option
from sweet.learn.components import Objective
from sweet.learn.engine import CLIP, Engine
from sweet.learn.logprobs import Scorer
from sweet.learn.remote import RemoteScorer
from sweet.learn.sequences import TokenSequence
from sweet.learn.trainee import Trainee
from sweet.llm.pretrained import load_model
from sweet.llm.tinker import Service
from sweet.tasks.trajectory import Trajectory
from sweet.training.asked_models import AskedModels, RunCritic
from sweet.training.basis import Basis
from sweet.training.examples import DialogueEncoder
from sweet.training.remote import by_service
from sweet.training.reward_model import RewardModel


class StartingPolicy(AskedModels):
    """The models of a training on recorded dialogues.

    Args:
        load: returns the scorer of the model; called when a rule first asks for probabilities.
    """

    def __init__(
        self,
        encoder: DialogueEncoder,
        load: Callable[[], Scorer],
        budget: int,
        critic: RunCritic | None = None,
        reward: RewardModel | None = None,
    ) -> None:
        super().__init__(encoder, budget, critic, reward)
        self._load = load

    def open(self, model: Which) -> AbstractContextManager[Scorer]:
        return nullcontext(self.reward_model().scorer if model == "reward" else self._scorer)

    @cached_property
    def _scorer(self) -> Scorer:
        return self._load()


class PlannedPolicy(StartingPolicy):
    """The same of a training that is only planned: nothing is computed. Every sequence has another log-probability and
    every turn another advantage, so that no two are equal."""

    _numbers = count(1)

    def train_reward(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining
    ) -> None:
        pass

    def _scores(self, model: Which, sequences: Sequence[TokenSequence], top: int) -> list[TurnLogprobs]:
        ids, logprobs = (tuple(range(top)),) if top else (), ((0.0,) * top,) if top else ()
        sizes = [sequence.supervised for sequence in sequences]
        return [TurnLogprobs((-1 / next(self._numbers),) * size, ids * size, logprobs * size) for size in sizes]

    def _advantages(self, critic: RunCritic, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        numbers = map(float, count())
        return {dialogue.id: dict(zip(dialogue.agent_turns, numbers, strict=False)) for dialogue in dialogues}


def starting_policy(basis: Basis, rule: CreditRule, critic: RunCritic | None, *, planned: bool) -> StartingPolicy:
    """Return the models that a credit rule may ask.

    Args:
        critic: of the run; None for a rule that asks none.
        planned: nothing is computed.

    Raises:
        UsageError: the rule trains a reward model, and the policy is trained by several processes.
    """
    is_remote = by_service(basis.config)
    if rule.trains_reward and (basis.layout is not None or is_remote):
        raise UsageError(
            f"The rule {rule.name} trains a second model, which only one process on one device can.",
            where=f"{option('algorithm', rule.name)} {option('engine', basis.config.engine)}",
            fix="--engine torch",
        )
    config, model = basis.config, basis.model

    def load() -> Scorer:
        if is_remote:
            return RemoteScorer(Service(model.trainee.start.base).training())
        if basis.layout is None:
            return Scorer(model.trainee.model)
        # The ranks hold the weights of the training; this process reads them once more.
        return Scorer(load_model(model.base, config.device, tokenizer=model.encoder.tokenizer))

    encoder, reward = basis.builder.encoder, None
    if rule.trains_reward and not planned:
        trainee = Trainee.load(model.trainee.start, config.device, tokenizer=model.encoder.tokenizer)
        trainee.model.eval()  # with dropout, its log-ratios would not be 0 at the start
        engine = Engine(trainee.model, CLIP)
        if config.packing == "plain":
            engine.scorer.max_shared_length = 0
        lr = basis.hyperparameters.lr
        reward = RewardModel(engine, encoder, lr, token_budget=model.token_budget, seed=config.seed)
    models = PlannedPolicy if planned else StartingPolicy
    return models(encoder, load, 2 * model.token_budget, critic, reward)
