"""Learns from the dialogues of one step: the credit rule weighs them, the optimizer updates the weights.

The models that a rule may ask (`sweet.credit.base.Models`) are the policy as it is now, and the model that it started
from: a frozen copy, or with LoRA the model without its adapter. The start also measures how far the policy has gone,
in the tokens that were sampled: KL(mu || start), estimated without bias and never below 0 by exp(d) - 1 - d with
d = log start(a) - log mu(a) (J. Schulman, Approximating KL Divergence, 2020).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweet.credit.base import Batch, CreditRule, NothingToLearn, Which
from sweet.credit.hyperparameters import Hyperparameters
from sweet.errors import SweetError, UsageError
from sweet.hints import Hint, option, stage
from sweet.learn.batches import epoch_order, step_share
from sweet.learn.components import Counts, Example, Objective
from sweet.learn.data import losses
from sweet.learn.engine import TorchEngine
from sweet.learn.logprobs import Scorer
from sweet.learn.lora import base_alone, merged_weights
from sweet.learn.metrics import MetricSums, MicroBatchSums, Record, max_turns
from sweet.learn.reference import reference_logprobs
from sweet.learn.tokens import TokenSequence
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import Trajectory
from sweet.training.dialogue_encoder import DialogueEncoder
from sweet.training.examples import ExampleBuilder
from sweet.training.model import StartingModel
from sweet.training.reward_model import RewardModel
from sweet.training.starting_policy import AskedModels

CLIP = 1.0
"""Maximum norm of a gradient."""


@dataclass(frozen=True)
class LearnerSettings:
    """How the examples of a step are learned.

    Attributes:
        epochs: passes over them.
        batch: examples for each update of the weights; None for all.
        seed: of their order.
        token_budget: tokens of one forward pass.
        share: compute once what the sequences of a micro-batch share.
    """

    epochs: int
    batch: int | None
    seed: int
    token_budget: int
    share: bool = True


class PolicyModels(AskedModels):
    """The models of a policy that is being trained.

    Args:
        start: returns the scorer of the model that the policy started from, within the context.
        budget: tokens of one forward pass.
    """

    def __init__(
        self,
        encoder: DialogueEncoder,
        policy: Scorer,
        start: Callable[[], AbstractContextManager[Scorer]],
        budget: int,
    ) -> None:
        super().__init__(encoder, budget)
        self._policy, self._start = policy, start

    def open(self, model: Which) -> AbstractContextManager[Scorer | None]:
        """See `AskedModels.open`; `check_online` refuses rules that ask for other models."""
        return self._start() if model == "start" else nullcontext(self._policy)

    def reward_model(self) -> RewardModel | None:
        raise UsageError("An online training has no reward model.", fix="a rule that trains none")


def check_online(rule: CreditRule) -> None:
    """Check that a rule can learn online, with the models that an online training has.

    Raises:
        UsageError: it cannot.
    """
    where = option("algorithm", rule.name)
    if not rule.online:
        raise UsageError(f"The rule {rule.name} does not learn online.", where=where, fix=option("algorithm", "grpo"))
    asked = {
        "a reward model": rule.trains_reward,
        "a critic": rule.asks_critic,
        "the average of the policy's weights": rule.average_rate is not None,
    }
    for what, needed in asked.items():
        if needed:
            raise UsageError(
                f"The rule {rule.name} asks for {what}, which an online training does not have yet.",
                where=where,
                fix=Hint(stage("train-actor"), " with this method learns from recorded dialogues"),
            )


class Learner:
    """Updates a model in memory, step by step.

    Args:
        model: to train, with weights.
        rule: weighs the dialogues.
        rewards: what the rewards of this kind of task mean.
        source: id of the rollouts, for errors.

    Attributes:
        updates: of the weights so far.
    """

    def __init__(
        self,
        model: StartingModel,
        rule: CreditRule,
        objective: Objective,
        used: Hyperparameters,
        settings: LearnerSettings,
        rewards: RewardRule,
        source: str,
    ) -> None:
        self.model, self.rule, self.objective, self.used = model, rule, objective, used
        self.settings, self.rewards, self.source = settings, rewards, source
        network = model.trainee.model
        network.eval()  # with dropout, policy and sampler would differ even with equal weights
        self._start = None if model.trainee.start.lora else Scorer(copy.deepcopy(network).requires_grad_(False))
        self.engine = TorchEngine(network, CLIP)
        self.scorer = self.engine.scorer
        self.scorer.computes_logprobs = objective.needs_tokens
        if not settings.share:
            self.scorer.max_shared_length = 0
        self.updates = 0

    # What a step teaches ------------------------------------------------------------------------------------------

    def learn(self, step: int, dialogues: Sequence[Trajectory], rewards: Mapping[str, float]) -> Record:
        """Update the weights by the dialogues of a step, and return what it did.

        Raises:
            SweetError: a loss or a gradient is not finite.
        """
        batch = Batch({one.id: one for one in dialogues}, self.rewards, rewards=rewards, source=self.source)
        build = ExampleBuilder(self.model.encoder, recipe="paper", max_length=self.model.max_length, source=self.source)
        models = PolicyModels(build.encoder, self.scorer, self._starting, 2 * self.settings.token_budget)
        divergence = self._divergence(dialogues, models)
        try:
            examples = build.credits(batch, self.rule.credit(batch, models), models)
        except NothingToLearn:
            examples = []
        pool = build.pool.sequences
        reference = None
        if examples and self.objective.needs_reference:
            with self._starting() as start:
                reference = reference_logprobs(start, self.engine, pool, 2 * self.settings.token_budget, None).sums
        sums, norms = MetricSums(), []
        size = self.settings.batch or max(len(examples), 1)
        for epoch in range(self.settings.epochs if examples else 0):
            order = epoch_order(examples, self.settings.seed, step * self.settings.epochs + epoch)
            for place in range(0, len(order), size):
                found, norm = self._update(step, pool, [examples[i] for i in order[place : place + size]], reference)
                sums.add(found)
                norms.append(norm)
        means = sums.means(preference=self.objective.compares) if examples else {}
        return {
            "examples": len(examples),
            "left_out": len(build.too_long),
            "updates": len(norms),
            **{name: value for name, value in means.items() if value is not None},
            "lr": self.used.lr,
            "grad_norm": max(norms, default=None),
            "kl_start": divergence,
        }

    def _update(
        self, step: int, pool: Sequence[TokenSequence], examples: list[Example], reference: Sequence[Tensor] | None
    ) -> tuple[MetricSums, float]:
        """Update the weights once; return the sums of the examples, and the norm of the gradient before clipping."""
        engine, scorer = self.engine, self.scorer
        own = MicroBatchSums(max_turns(pool) if reference is not None else 0, scorer.device)
        share = step_share(pool, examples, scorer.pack, self.settings.token_budget, engine.rank, engine.world)
        of_update = Counts.of(examples)
        for number, (group, counts) in enumerate(share):
            part, before = [examples[i] for i in group], scorer.work
            found = losses(scorer, self.objective, pool, part, reference, of_update)
            engine.backward(found.loss.sum() * counts / len(examples), last=number == len(share) - 1)
            own.add(pool, part, found, scorer.work - before)
        totals, by_part = own.fetch()
        norm = engine.step(self.used.lr)
        if not math.isfinite(norm) or not all(math.isfinite(loss) for loss, *_ in by_part):
            raise SweetError(
                f"The loss or gradient of step {step} is not a finite number.",
                where=", ".join(example.name for example in examples[:8]),
                fix=Hint("a smaller ", option("lr"), ", then ", option("resume", True)),
            )
        self.updates += 1
        return MetricSums.from_flat(len(examples), totals.flat()), norm

    # The models ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _starting(self) -> Iterator[Scorer]:
        """The scorer of the model that the policy started from."""
        if self._start is not None:
            yield self._start
            return
        with base_alone(self.model.trainee.model):
            yield self.scorer

    def _divergence(self, dialogues: Sequence[Trajectory], models: PolicyModels) -> float | None:
        """The divergence of the policy that sampled from the start, nats a token; None if no probability is known."""
        start = models.logprobs("start", [dialogue for dialogue in dialogues if dialogue.agent_turns])
        total, tokens = 0.0, 0
        for dialogue in dialogues:
            for turn, found in start.get(dialogue.id, {}).items():
                sampled = dialogue.dialogue_history[turn].logprobs
                if sampled is None or len(sampled) < len(found.tokens):
                    continue  # other ids, or a thought that is not learned
                pairs = zip(found.tokens, sampled[-len(found.tokens) :], strict=True)
                total += sum(math.expm1(own - mu) - (own - mu) for own, mu in pairs)
                tokens += len(found.tokens)
        return total / tokens if tokens else None

    def sampled_weights(self) -> dict[str, Tensor]:
        """The weights of the policy for a sampler, by the names of the model without an adapter."""
        with torch.no_grad():
            return merged_weights(self.model.trainee.model)

    # Checkpoints --------------------------------------------------------------------------------------------------

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """Save weights, optimizer and random state with `state`."""
        self.engine.save(path, {**state, "updates": self.updates})

    def load(self, path: Path, digest: str) -> dict[str, Any]:
        """Restore what `save` wrote and return its `state`.

        Raises:
            UsageError: it is of another training, or cannot be read.
        """
        state = self.engine.load(path, digest)
        self.updates = int(state["updates"])
        return state
