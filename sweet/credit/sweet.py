"""Comparisons: SWEET's step-level pairs of replies, ranked by a critic that sees the training-time information
(arXiv 2503.15478), and multi-turn DPO's whole dialogues, without training-time information."""

from __future__ import annotations

from typing import Literal

from sweet.credit.base import Batch, Credit, CreditRule, Hyperparameters, Models
from sweet.learn.components import Objective
from sweet.tasks.base import ProtocolName


class Sweet(CreditRule):
    """Each pair is compared on what the agent had seen; the likelihood is of the chosen reply, also of one that stands
    alone (`sweet pair --unpaired best`).

    With likelihood=mean, as published, a token of a short question weighs more than one of a long answer. With
    likelihood=sum all tokens weigh the same.
    """

    name = "sweet"
    reads = "pairs"
    large = Hyperparameters(lr=2e-7, nll=0.01, epochs=1, batch=8)
    small = Hyperparameters(lr=5e-4, nll=3.0, epochs=2, batch=8)

    likelihood: Literal["mean", "sum"] = "mean"
    """Likelihood of a chosen reply: the mean over its tokens, or their sum."""

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        # The published actor's likelihood term has no response mask.
        return Objective(beta or None, nll, "none", whole_nll=protocol == "upstream", sum_nll=self.likelihood == "sum")

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        return [Credit(pair) for pair in batch.pairs]


class MultiTurnDPO(CreditRule):
    """Of the dialogues of a task the better against the worse: each preference compares the sums of the log-ratios of
    all turns of its dialogues."""

    name = "multi-turn-dpo"
    reads = "preferences"
    large = Hyperparameters(lr=2e-7, nll=0.01, epochs=4, batch=8)
    small = Hyperparameters(lr=1e-3, nll=30.0, epochs=8, batch=8)
    dialogue_epochs = True

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(beta or None, nll, "none")

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        return [Credit(preference) for preference in batch.preferences]
