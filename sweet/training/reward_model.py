"""A second model of a training: an implicit reward model, which is trained in turns with the policy.

It begins as the model that the policy starts from (with the same adapter, if one is trained), has an optimizer of its
own, and learns preferences between dialogues: DPO whose reference is the model that sampled them (arXiv 2509.19199).
Its state belongs to the checkpoint of the training: a training that was interrupted and resumed goes through the same
weights as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sweet.credit.base import REWARD_LR, Batch, Credit, RewardTraining, TurnLogprobs, Which
from sweet.hints import option
from sweet.learn.batches import epoch_order
from sweet.learn.components import Objective
from sweet.learn.data import Pool
from sweet.learn.engine import TorchEngine, copy_weights
from sweet.learn.logprobs import Scorer
from sweet.learn.metrics import MetricSums, max_turns, rounded
from sweet.learn.trainee import Trainee
from sweet.learn.update import update_weights
from sweet.stages.rows import Preference
from sweet.tasks.trajectory import Trajectory
from sweet.training.dialogue_encoder import DialogueEncoder
from sweet.training.examples import ExampleBuilder
from sweet.units import count, percent

CLIP = 1.0
"""Maximum norm of a gradient."""


class Asked(Protocol):
    """What it asks of the other models; see `sweet.credit.base.Models`."""

    def logprobs(
        self, model: Which, dialogues: Sequence[Trajectory], *, informed: bool = False, top: int = 0
    ) -> dict[str, dict[int, TurnLogprobs]]: ...

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]: ...

    def train_reward(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining
    ) -> None: ...


@dataclass(frozen=True)
class RewardFigures:
    """What the last training of a reward model did.

    Attributes:
        preferences: that it learned from, in each epoch.
        updates: of its weights.
        loss, accuracy: means over the last epoch, each before the update that it led to.
    """

    preferences: int
    updates: int
    loss: float
    accuracy: float

    def as_metrics(self) -> dict[str, Any]:
        """Return them under their names in the metrics of a training."""
        return {
            "reward_preferences": self.preferences,
            "reward_loss": rounded(self.loss),
            "reward_accuracy": rounded(self.accuracy),
        }

    def __str__(self) -> str:
        learned = f"{count(self.preferences, 'preference')}, {count(self.updates, 'update')}"
        return f"{learned}, loss {self.loss:.4f}, accuracy {percent(self.accuracy)}"


class RewardModel:
    """Trains a reward model on one device.

    Args:
        trainee: the model with its weights, from which the policy starts too; no other training may use it.
        policy_lr: the policy's learning rate.
        token_budget: tokens of a micro-batch.
        seed: of the order of the examples.
        share: compute once what the sequences of a micro-batch share.

    Attributes:
        scorer: runs its forward passes.
        figures: of the last training; None before the first.
    """

    def __init__(
        self,
        trainee: Trainee,
        encoder: DialogueEncoder,
        policy_lr: float,
        *,
        token_budget: int,
        seed: int = 0,
        share: bool = True,
    ) -> None:
        trainee.model.eval()  # with dropout, its log-ratios would not be 0 at the start
        self._engine = TorchEngine(trainee.model, CLIP)
        self.scorer: Scorer = self._engine.scorer
        if not share:
            self.scorer.max_shared_length = 0
        self._encoder, self._policy_lr, self._budget, self._seed = encoder, policy_lr, token_budget, seed
        self._epochs = 0
        self.figures: RewardFigures | None = None

    def train(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining, models: Asked
    ) -> None:
        """See `sweet.credit.base.Models.train_reward`. Preferences that do not fit into the maximum length are left
        out.

        Args:
            models: asked for the probabilities of the model that sampled.
        """
        encoder = self._encoder
        build = ExampleBuilder(
            encoder.encoder, recipe=encoder.recipe, max_length=encoder.max_length, source=batch.source
        )
        examples = build.credits(batch, credits, models)
        if not examples:
            return
        reference = sampler_reference(build.pool, credits, batch, models)
        lr = REWARD_LR * self._policy_lr if settings.lr is None else settings.lr
        pool = build.pool.sequences
        turns, updates = max_turns(pool), 0
        for _ in range(settings.epochs):
            order = epoch_order(examples, self._seed, self._epochs)
            self._epochs += 1
            sums = MetricSums()
            for place in range(0, len(order), settings.batch):
                found, _ = update_weights(
                    self._engine,
                    objective,
                    pool,
                    [examples[index] for index in order[place : place + settings.batch]],
                    reference,
                    lr,
                    token_budget=self._budget,
                    turns=turns,
                    of="the reward model",
                    fix=option("rule_option", f"reward-lr={lr / 10:g}"),
                )
                sums.add(found)
                updates += 1
            self.figures = RewardFigures(len(examples), updates, sums.loss / len(examples), sums.right / len(examples))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must have: weights, optimizer, and the passes done."""
        weights = {name: tensor.cpu().clone() for name, tensor in self._engine.weights().items()}
        return {"model": weights, "optimizer": self._engine.optimizer.state_dict(), "epochs": self._epochs}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: it is of another model.
        """
        copy_weights(self._engine.parameters, state["model"])
        self._engine.optimizer.load_state_dict(state["optimizer"])
        self._epochs = int(state["epochs"])


def sampler_reference(pool: Pool, credits: Sequence[Credit], batch: Batch, models: Asked) -> list[Tensor]:
    """Return the sums of the sampler's log-probabilities over the spans of each sequence of a pool, [spans] each, as
    `sweet.learn.data.losses` expects them.

    Args:
        credits: of preferences.
    """
    names = dict.fromkeys(
        name
        for credit in credits
        if isinstance(credit.of, Preference)
        for name in (credit.of.chosen, credit.of.rejected)
    )
    known = {name: indices for name in names if (indices := pool.find(name)) is not None}
    sampled = models.logprobs("sampler", [batch.dialogues[name] for name in known])
    found = [torch.empty(0)] * len(pool.sequences)
    for name, indices in known.items():
        for index in indices:
            found[index] = torch.tensor(
                [
                    sum(w * value for w, value in zip(span.weights, sampled[name][span.turn].tokens, strict=True))
                    for span in pool.sequences[index].spans
                ]
            )
    return found
