"""Learns from the dialogues of one step: the credit rule weighs them, the optimizer updates the weights.

The rule may ask for several models (`sweet.credit.base.Which`), all in this process:

    policy   the model that is trained, with its weights of now
    start    a frozen copy of the weights at the start; with LoRA the trained model without its adapter
    average  the moving average of the policy's weights
    reward   a second model, trained in turns with the policy: a reward model, or a value function
    critic   that of the run; it does not change

Several ranks ask together, and each computes a share of the forward passes. Average and reward model change from step
to step, so their state belongs to the checkpoint.

The model at the start also measures how far the policy has gone, in the tokens that were sampled: KL(mu || start),
estimated without bias and never below 0 by exp(d) - 1 - d with d = log start(a) - log mu(a) (J. Schulman, Approximating
KL Divergence, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sweet.credit.base import Batch, CreditRule, Hyperparameters, NothingToLearn, Which
from sweet.credit.registry import credit_rule
from sweet.errors import UsageError
from sweet.judges.control import CreditScorer
from sweet.learn.batches import epoch_order
from sweet.learn.components import Example
from sweet.learn.engine import Engine, scores_in_shares
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import update_weights
from sweet.learn.lora import base_alone
from sweet.learn.metrics import MetricSums, Record, max_turns
from sweet.learn.remote import RemoteEngine
from sweet.learn.sequences import TokenSequence
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Trainee
from sweet.learn.weights import WeightAverage
from sweet.llm.pretrained import load_tokenizer
from sweet.online.config import TrainOnlineConfig
from sweet.online.safeguards import turns_in_order
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Trajectory
from sweet.training.asked_models import AskedModels, RunCritic
from sweet.training.examples import DialogueEncoder, ExampleBuilder
from sweet.training.model import StartingModel, starting_model
from sweet.training.reward_model import RewardModel


class LiveModels(AskedModels):
    """The models of a policy that is being trained.

    Args:
        trainee: the policy, still with the weights at the start.
        engine: trains the policy and runs its forward passes.
        budget: tokens of one forward pass.
        critic, reward: see `AskedModels`.
    """

    def __init__(
        self,
        encoder: DialogueEncoder,
        trainee: Trainee,
        engine: Engine,
        budget: int,
        rule: CreditRule,
        critic: RunCritic | None,
        reward: RewardModel | None,
    ) -> None:
        super().__init__(encoder, budget, critic, reward, engine if engine.world > 1 else None)
        self._network, self._policy, self._engine = trainee.model, engine.scorer, engine
        self._start = WeightAverage(engine, 0.0) if trainee.start.lora is None else None
        self._average = None if rule.average_rate is None else WeightAverage(engine, rule.average_rate)

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
        elif model == "start" and isinstance(self._engine, RemoteEngine):
            yield self._engine.start
        elif model == "start":
            with base_alone(self._network) if self._start is None else self._start.in_place():
                yield self._policy
        else:
            yield self._policy

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


def policy_to_train(config: TrainOnlineConfig, base: str, load: Callable[..., Trainee]) -> StartingModel:
    """Return the model to train; see `starting_model`."""
    encoder = ChatEncoder(load_tokenizer(base), config.turn_tokens or "both", config.effort)
    return starting_model(config, base, encoder, load)


class Learner:
    """Updates a model in memory, step by step. All ranks must call every method together, with the same arguments.

    Args:
        source: id of the rollouts.
        critic: answers for the critic of the run; None for a rule that asks none.
        load: loads a model with its weights, as for `policy_to_train`.
        model: to train, with weights.
        make_engine: returns the engine of such a model, of one or several ranks, given the maximum norm of a gradient.

    Attributes:
        updates: of the weights so far.
        rank: number of this process.
    """

    def __init__(
        self,
        config: TrainOnlineConfig,
        used: Hyperparameters,
        source: str,
        critic: RunCritic | None,
        load: Callable[..., Trainee],
        model: StartingModel,
        make_engine: Callable[[Any, float], Engine] = Engine,
    ) -> None:
        self.config, self.used, self.model, self.source = config, used, model, source
        self.rule = rule = credit_rule(config.algorithm, config.rule_option)
        self.rewards = task_kind(config.task).rewards
        self.truth = CreditScorer(task_kind(config.task), config.max_turns)
        self.objective = rule.objective(config.beta, used.nll, "paper")

        def engine_of(trainee: Trainee) -> Engine:
            trainee.model.eval()  # with dropout, policy and sampler would differ even with equal weights
            engine = make_engine(trainee.model, config.max_grad_norm)
            engine.weight_decay = config.weight_decay
            if config.packing == "plain":
                engine.scorer.max_shared_length = 0
            return engine

        self.engine = engine_of(model.trainee)
        self.rank, self.scorer = self.engine.rank, self.engine.scorer
        self.scorer.computes_logprobs = self.objective.needs_tokens
        encoder, budget = DialogueEncoder(model.encoder, "paper", model.max_length), model.token_budget
        reward = None
        if rule.trains_reward:
            start = replace(model.trainee.start, head=rule.value_head)
            second = engine_of(load(start, tokenizer=model.encoder.tokenizer))
            second.scorer.computes_logprobs = not rule.value_head
            reward = RewardModel(second, encoder, used.lr, token_budget=budget, seed=config.seed)
        self.models = LiveModels(encoder, model.trainee, self.engine, 2 * budget, rule, critic, reward)
        self.updates = 0

    def check(self) -> None:
        """There is no other process that could fail."""

    # What a step teaches ------------------------------------------------------------------------------------------

    def learn(self, step: int, dialogues: Sequence[Trajectory], rewards: Mapping[str, float]) -> Record:
        """Update the weights by the dialogues of a step, and return what it did.

        Raises:
            SweetError: a loss or a gradient is not finite.
        """
        batch = Batch({d.id: d for d in dialogues}, self.rewards, rewards=rewards, source=self.source)
        build = ExampleBuilder(self.models.encoder, self.source)
        divergence, reward_before = self._divergence(dialogues), self.models.reward_figures
        try:
            credits = self.rule.credit(batch, self.models)
        except NothingToLearn:
            credits = []
        # Whatever a rule does with random numbers or sets, all ranks learn the same.
        credits = self.engine.all_gather(credits)[0]
        in_order, couples = turns_in_order(credits, batch, self.truth)
        examples = build.credits(batch, credits, self.models)
        pool = build.pool.sequences
        reference = None
        if examples and self.objective.needs_reference:
            with self.models.open("start") as start:
                budget = 2 * self.model.token_budget
                reference = scores_in_shares(self.engine, start, pool, budget, lambda scores: scores.sums)
        sums, norms = MetricSums(), []
        size, epochs = self.config.batch or max(len(examples), 1), self.config.epochs or 1
        for epoch in range(epochs if examples else 0):
            order = epoch_order(examples, self.config.seed, step * epochs + epoch)
            for first in range(0, len(order), size):
                minibatch = [examples[i] for i in order[first : first + size]]
                step_sums, norm = self._update(step, pool, minibatch, reference)
                sums.add(step_sums)
                norms.append(norm)
        reward, groups = self.models.reward_figures, len(batch.groups())
        means = sums.means(preference=self.objective.compares) if examples else {}
        return {
            "equal_groups": len(batch.equal_groups()) / groups if groups else None,
            "examples": len(examples),
            "left_out": len(build.too_long),
            "updates": len(norms),
            **({"turns_in_order": in_order, "turn_couples": couples} if couples else {}),
            **{name: value for name, value in means.items() if value is not None},
            "lr": self.used.lr,
            "grad_norm": max((norm for norm in norms if norm is not None), default=None),
            "kl_start": divergence,
            **({} if reward is None or reward is reward_before else reward),
        }

    def _update(
        self, step: int, pool: Sequence[TokenSequence], examples: list[Example], reference: Sequence[Tensor] | None
    ) -> tuple[MetricSums, float | None]:
        """Update the weights once; return the sums of the examples, and the norm of the gradient before clipping."""
        sums_and_norm = update_weights(
            self.engine,
            self.objective,
            pool,
            examples,
            reference,
            self.used.lr,
            token_budget=self.model.token_budget,
            turn_count=max_turns(pool) if reference is not None else 0,
            what=f"step {step}",
        )
        self.updates += 1
        self.models.updated()
        return sums_and_norm

    # The weights --------------------------------------------------------------------------------------------------

    def _divergence(self, dialogues: Sequence[Trajectory]) -> float | None:
        """The divergence of the policy that sampled from the start, nats a token; None if no probability is known."""
        start = self.models.logprobs("start", [dialogue for dialogue in dialogues if dialogue.agent_turns])
        total, tokens = 0.0, 0
        for dialogue in dialogues:
            for turn, turn_logprobs in start.get(dialogue.id, {}).items():
                sampler_logprobs = dialogue.dialogue_history[turn].logprobs
                if sampler_logprobs is None or len(sampler_logprobs) < len(turn_logprobs.tokens):
                    continue  # other ids, or a thought that is not learned
                pairs = zip(turn_logprobs.tokens, sampler_logprobs[-len(turn_logprobs.tokens) :], strict=True)
                log_ratios = [logprob - sampler_logprob for logprob, sampler_logprob in pairs]
                total += sum(math.expm1(log_ratio) - log_ratio for log_ratio in log_ratios)
                tokens += len(turn_logprobs.tokens)
        return total / tokens if tokens else None

    def sampled_weights(self) -> dict[str, Tensor] | None:
        """The weights of the policy for a sampler, by the names of the model without an adapter, on rank 0; None on the
        others."""
        return self.engine.merged_weights()

    def weights(self) -> dict[str, Tensor] | None:
        """The trained weights by name on rank 0; None on the others."""
        return self.engine.weights()

    # Checkpoints --------------------------------------------------------------------------------------------------

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """Save weights, optimizer, random state and the state of the other models with `state`."""
        self.engine.save(path, {**state, "updates": self.updates}, self.models)

    def load(self, path: Path, digest: str) -> dict[str, Any]:
        """Restore what `save` wrote and return its `state`.

        Raises:
            UsageError: it is of another training, or cannot be read.
        """
        state = self.engine.load(path, digest, self.models)
        self.updates = int(state["updates"])
        return state
