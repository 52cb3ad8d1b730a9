"""Multi-turn DPO: whole dialogues of a task, the better against the worse, without training-time information."""

from __future__ import annotations

from sweet.credit.base import Batch, Credit, CreditRule, Hyperparameters, Models
from sweet.learn.components import Objective
from sweet.tasks.base import ProtocolName


class MultiTurnDPO(CreditRule):
    """Each preference compares the sums of the log-ratios of all turns of its dialogues."""

    name = "multi-turn-dpo"
    reads = "preferences"
    large = Hyperparameters(lr=2e-7, nll=0.01, epochs=4, batch=8)
    small = Hyperparameters(lr=1e-3, nll=30.0, epochs=8, batch=8)
    dialogue_epochs = True

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(beta or None, nll, "none")

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        return [Credit(preference) for preference in batch.preferences]
