"""Supervised fine-tuning on every dialogue, good or bad: a warm-up, usually from another model (`--model`)."""

from __future__ import annotations

from sweet.credit.base import Batch, Credit, CreditRule, Hyperparameters, Models
from sweet.learn.components import Objective
from sweet.preferences.label import learnable
from sweet.tasks.base import ProtocolName


class SupervisedFineTuning(CreditRule):
    """The likelihood of the agent's turns of each dialogue that no fault ended."""

    name = "sft"
    reads = "rollouts"
    large = Hyperparameters(lr=2e-5, nll=1.0, epochs=1, batch=32)
    small = Hyperparameters(lr=5e-4, nll=1.0, epochs=1, batch=32)

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(None, nll)

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        return [Credit(name) for name in sorted(d.id for d in batch.dialogues.values() if learnable(d))]
