"""Learns from the dialogues of one step: the credit rule weighs them, the optimizer updates the weights.

The rule may ask for several models (`sweet.online.models`). The one at the start also measures how far the policy has
gone, in the tokens that were sampled: KL(mu || start), estimated without bias and never below 0 by exp(d) - 1 - d with
d = log start(a) - log mu(a) (J. Schulman, Approximating KL Divergence, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from sweet.credit.base import Batch, CreditRule, Hyperparameters, NothingToLearn
from sweet.learn.batches import epoch_order
from sweet.learn.components import Example, Objective
from sweet.learn.engine import Engine
from sweet.learn.loop import update_weights
from sweet.learn.metrics import MetricSums, Record, max_turns
from sweet.learn.reference import reference_logprobs
from sweet.learn.sequences import TokenSequence
from sweet.online.models import LiveModels
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import Trajectory
from sweet.training.examples import DialogueEncoder, ExampleBuilder
from sweet.training.model import StartingModel
from sweet.training.reward_model import RewardModel
from sweet.training.run_critic import RunCritic


class Learns(Protocol):
    """What learns, as the loop calls it: a `Learner` in this process, or several in ranks (`sweet.online.ranks`).

    Attributes:
        updates: of the weights so far.
    """

    @property
    def updates(self) -> int: ...
    @property
    def rank(self) -> int: ...

    def learn(self, step: int, dialogues: Sequence[Trajectory], rewards: Mapping[str, float]) -> Record: ...
    def sampled_weights(self) -> Mapping[str, Tensor] | None: ...
    def weights(self) -> Mapping[str, Tensor] | None: ...
    def save(self, path: Path, state: dict[str, Any]) -> None: ...
    def load(self, path: Path, digest: str) -> dict[str, Any]: ...

    def check(self) -> None:
        """Raise the error of a rank that has failed."""


@dataclass(frozen=True)
class LearnerSettings:
    """How the examples of a step are learned.

    Attributes:
        epochs: passes over them.
        batch: examples for each update of the weights; None for all.
        seed: of their order.
        token_budget: tokens of one forward pass.
        share: compute once what the sequences of a micro-batch share.
        replays_segments: keep the activations of one segment of a tree (`Scorer.replay_segments`).
    """

    epochs: int
    batch: int | None
    seed: int
    token_budget: int
    share: bool = True
    replays_segments: bool = False


class Learner:
    """Updates a model in memory, step by step. All ranks must call every method together, with the same arguments.

    Args:
        model: to train, with weights.
        engine: trains it; of one or several ranks.
        rule: weighs the dialogues.
        rewards: what the rewards of this kind of task mean.
        source: what is learned from, for errors.
        critic, load_reward: see `LiveModels`.

    Attributes:
        updates: of the weights so far.
        rank: number of this process.
    """

    def __init__(
        self,
        model: StartingModel,
        engine: Engine,
        rule: CreditRule,
        objective: Objective,
        used: Hyperparameters,
        settings: LearnerSettings,
        rewards: RewardRule,
        source: str,
        critic: RunCritic | None,
        load_reward: Callable[[DialogueEncoder], RewardModel],
    ) -> None:
        self.model, self.rule, self.objective, self.used = model, rule, objective, used
        self.settings, self.rewards, self.source = settings, rewards, source
        self.engine, self.rank = engine, engine.rank
        self.scorer = engine.scorer
        self.scorer.computes_logprobs = objective.needs_tokens
        self.scorer.set_packing(share=settings.share, replays_segments=settings.replays_segments)
        encoder = DialogueEncoder(model.encoder, "paper", model.max_length)
        budget = 2 * settings.token_budget
        self.models = LiveModels(encoder, model.trainee, engine, budget, rule, critic, load_reward)
        self.updates = 0

    def check(self) -> None:
        """There is no other process that could fail."""

    # What a step teaches ------------------------------------------------------------------------------------------

    def learn(self, step: int, dialogues: Sequence[Trajectory], rewards: Mapping[str, float]) -> Record:
        """Update the weights by the dialogues of a step, and return what it did.

        Raises:
            SweetError: a loss or a gradient is not finite.
        """
        batch = Batch({one.id: one for one in dialogues}, self.rewards, rewards=rewards, source=self.source)
        build = ExampleBuilder(
            self.model.encoder, protocol="paper", max_length=self.model.max_length, source=self.source
        )
        divergence, before = self._divergence(dialogues), self.models.reward_figures
        try:
            credits = self.rule.credit(batch, self.models)
        except NothingToLearn:
            credits = []
        # Whatever a rule does with random numbers or sets, all ranks learn the same.
        examples = build.credits(batch, self.engine.all_gather(credits)[0], self.models)
        pool = build.pool.sequences
        reference = None
        if examples and self.objective.needs_reference:
            with self.models.open("start") as start:
                reference = reference_logprobs(start, self.engine, pool, 2 * self.settings.token_budget, None)
        sums, norms = MetricSums(), []
        size = self.settings.batch or max(len(examples), 1)
        for epoch in range(self.settings.epochs if examples else 0):
            order = epoch_order(examples, self.settings.seed, step * self.settings.epochs + epoch)
            for place in range(0, len(order), size):
                found, norm = self._update(step, pool, [examples[i] for i in order[place : place + size]], reference)
                sums.add(found)
                norms.append(norm)
        reward = self.models.reward_figures
        means = sums.means(preference=self.objective.compares) if examples else {}
        return {
            "examples": len(examples),
            "left_out": len(build.too_long),
            "updates": len(norms),
            **{name: value for name, value in means.items() if value is not None},
            "lr": self.used.lr,
            "grad_norm": max(norms, default=None),
            "kl_start": divergence,
            **({} if reward is None or reward is before else reward.as_metrics()),
        }

    def _update(
        self, step: int, pool: Sequence[TokenSequence], examples: list[Example], reference: Sequence[Tensor] | None
    ) -> tuple[MetricSums, float]:
        """Update the weights once; return the sums of the examples, and the norm of the gradient before clipping."""
        found = update_weights(
            self.engine,
            self.objective,
            pool,
            examples,
            reference,
            self.used.lr,
            token_budget=self.settings.token_budget,
            turns=max_turns(pool) if reference is not None else 0,
            of=f"step {step}",
        )
        self.updates += 1
        self.models.updated()
        return found

    # The weights --------------------------------------------------------------------------------------------------

    def _divergence(self, dialogues: Sequence[Trajectory]) -> float | None:
        """The divergence of the policy that sampled from the start, nats a token; None if no probability is known."""
        start = self.models.logprobs("start", [dialogue for dialogue in dialogues if dialogue.agent_turns])
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
