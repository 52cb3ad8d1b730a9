"""Hyperparameters that depend on the size of the model, where the user does not set them.

The paper trains models of 8 billion parameters at a learning rate of 2e-7; a model of one million does not move at
that rate, and without more likelihood in the loss its preference trainings push down whatever a rejected reply holds,
until a dialogue is no dialogue any more. Small models therefore get what did best on the validation tasks of the micro
dataset, of eleven settings each (`benchmarks/micro_tuning.py`). A regression head has no likelihood term; on tasks held
out it ordered as many preferences rightly at 1.5e-4 as at higher rates. The paper has no warm-up on every dialogue
(sft): a large model gets the rate that instruction tuning usually takes. What was used is recorded with the results.

An adapter (LoRA) gets ten times the rate of the whole model: its matrices start from zero and are multiplied with each
other, and over many models and data sets its best rate was found to be ten times the whole model's, whatever the rank
(Schulman et al., LoRA Without Regret, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sweet.tasks.base import Recipe

LARGE = 100_000_000
"""Parameters from which the paper's values apply."""

LORA = 10.0
"""The learning rate of an adapter over that of the whole model."""

Learner = Literal["critic", "regression", "sweet", "multi-turn-dpo", "rft", "sft"]


@dataclass(frozen=True)
class Hyper:
    """Learning rate, weight of the likelihood term, epochs and examples a step."""

    lr: float
    nll: float
    epochs: int
    batch: int


PAPER: dict[Learner, Hyper] = {
    "critic": Hyper(lr=2e-7, nll=0.01, epochs=4, batch=8),
    "regression": Hyper(lr=2e-7, nll=0.0, epochs=4, batch=8),
    "sweet": Hyper(lr=2e-7, nll=0.01, epochs=1, batch=8),
    "multi-turn-dpo": Hyper(lr=2e-7, nll=0.01, epochs=4, batch=8),
    "rft": Hyper(lr=2e-7, nll=1.0, epochs=4, batch=32),
    "sft": Hyper(lr=2e-5, nll=1.0, epochs=1, batch=32),
}

SMALL: dict[Learner, Hyper] = {
    "critic": Hyper(lr=7e-5, nll=1.0, epochs=2, batch=8),
    "regression": Hyper(lr=1.5e-4, nll=0.0, epochs=2, batch=8),
    "sweet": Hyper(lr=5e-4, nll=3.0, epochs=2, batch=8),
    "multi-turn-dpo": Hyper(lr=1e-3, nll=30.0, epochs=8, batch=8),
    "rft": Hyper(lr=2e-3, nll=1.0, epochs=40, batch=32),
    "sft": Hyper(lr=5e-4, nll=1.0, epochs=1, batch=32),
}


def resolve(
    learner: Learner,
    parameters: int,
    recipe: Recipe,
    *,
    lr: float | None,
    nll: float | None,
    epochs: int | None,
    batch: int | None,
    lora: bool = False,
) -> Hyper:
    """What the user set, and for the rest the values for a model of this many parameters.

    The published command for the critic leaves the likelihood term out, so recipe `upstream` does.
    """
    usual = (PAPER if parameters >= LARGE else SMALL)[learner]
    usual_lr = float(f"{LORA * usual.lr:.6g}") if lora else usual.lr
    usual_nll = 0.0 if learner == "critic" and recipe == "upstream" else usual.nll
    return Hyper(
        lr=usual_lr if lr is None else lr,
        nll=usual_nll if nll is None else nll,
        epochs=usual.epochs if epochs is None else epochs,
        batch=usual.batch if batch is None else batch,
    )
