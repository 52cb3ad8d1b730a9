"""A second model of a training: an implicit reward model, which is trained in turns with the policy.

It begins as the model that the policy starts from (with the same adapter, if one is trained), has an optimizer of its
own, and learns preferences between dialogues: DPO whose reference is the model that sampled them (arXiv 2509.19199).
With a head it is a value function instead, and learns returns. Its state belongs to the checkpoint of the training: a
training that was interrupted and resumed goes through the same weights as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweet.credit.base import REWARD_LR, Batch, Credit, Models, RewardTraining
from sweet.hints import option
from sweet.learn.batches import epoch_order
from sweet.learn.components import Objective
from sweet.learn.engine import Engine
from sweet.learn.logprobs import Scorer
from sweet.learn.loop import update_weights
from sweet.learn.metrics import MetricSums, Record, max_turns, rounded
from sweet.learn.rows import Preference
from sweet.learn.sequences import Pool
from sweet.training.examples import DialogueEncoder, ExampleBuilder


class RewardModel:
    """Trains a reward model.

    Args:
        engine: of the model, with the weights from which the policy starts too; no other training may use it.
        policy_lr: the policy's learning rate.
        token_budget: tokens of a micro-batch.
        seed: of the order of the examples.

    Attributes:
        engine, scorer: train it and run its forward passes.
        epochs: passes over examples so far.
        figures: metrics of the last training, as in `sweet.training.metrics.TrainMetrics`; None before the first.
    """

    def __init__(
        self, engine: Engine, encoder: DialogueEncoder, policy_lr: float, *, token_budget: int, seed: int = 0
    ) -> None:
        self.engine = engine
        self.scorer: Scorer = engine.scorer
        self._encoder, self._policy_lr, self._budget, self._seed = encoder, policy_lr, token_budget, seed
        self.epochs = 0
        self.figures: Record | None = None

    def train(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining, models: Models
    ) -> None:
        """See `sweet.credit.base.Models.train_reward`. Preferences that do not fit into the maximum length are left
        out.

        Args:
            models: asked for the probabilities of the model that sampled.
        """
        builder = ExampleBuilder(self._encoder, batch.source)
        examples = builder.credits(batch, credits, models)
        if not examples:
            return
        reference = sampler_reference(builder.pool, credits, batch, models) if objective.needs_reference else None
        option_of = "reward-lr" if objective.compares else "value-lr"
        lr = REWARD_LR * self._policy_lr if settings.lr is None else settings.lr
        pool = builder.pool.sequences
        turns = max_turns(pool)
        for _ in range(settings.epochs):
            order = epoch_order(examples, self._seed, self.epochs)
            self.epochs += 1
            sums = MetricSums()
            for first in range(0, len(order), settings.batch):
                step_sums, _ = update_weights(
                    self.engine,
                    objective,
                    pool,
                    [examples[index] for index in order[first : first + settings.batch]],
                    reference,
                    lr,
                    token_budget=self._budget,
                    turn_count=turns,
                    what="the reward model",
                    fix=option("rule_option", f"{option_of}={lr / 10:g}"),
                )
                sums.add(step_sums)
            loss, accuracy = (rounded(sums[name] / len(examples)) for name in ("loss", "right"))
            self.figures = {"value_loss": loss}
            if objective.compares:
                self.figures = {"reward_preferences": len(examples), "reward_loss": loss, "reward_accuracy": accuracy}

    def state(self, folder: Path | None = None) -> dict[str, Any]:
        """Return what a checkpoint must have, and what is not written to `folder` (`Engine.state`)."""
        return {**self.engine.state(folder), "epochs": self.epochs}

    def load_state(self, state: dict[str, Any], folder: Path | None = None) -> None:
        """Restore what `state` returned and wrote.

        Raises:
            ValueError: it is of another model.
        """
        self.engine.load_state(state, folder)
        self.epochs = int(state["epochs"])


def sampler_reference(pool: Pool, credits: Sequence[Credit], batch: Batch, models: Models) -> list[Tensor]:
    """Return the sums of the sampler's log-probabilities over the spans of each sequence of a pool, [spans] each, as
    `sweet.learn.losses.losses` expects them.

    Args:
        credits: of preferences.
    """
    preferences = [credit.of for credit in credits if isinstance(credit.of, Preference)]
    names = dict.fromkeys(name for preference in preferences for name in (preference.chosen, preference.rejected))
    indices_by_name = {name: indices for name in names if (indices := pool.find(name)) is not None}
    sampler_logprobs = models.logprobs("sampler", [batch.dialogues[name] for name in indices_by_name])
    reference = [torch.empty(0)] * len(pool.sequences)
    for name, indices in indices_by_name.items():
        logprobs = sampler_logprobs[name]
        for index in indices:
            reference[index] = torch.tensor(
                [
                    sum(w * value for w, value in zip(span.weights, logprobs[span.turn].tokens, strict=True))
                    for span in pool.sequences[index].spans
                ]
            )
    return reference
