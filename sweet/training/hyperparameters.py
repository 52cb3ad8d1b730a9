"""Hyperparameters that depend on the size of the model, where the user does not set them.

Likelihood term, epochs and batch: the paper's for models of 100M parameters and more, and for smaller ones the values
that did best on the validation tasks of the micro dataset, of six or eleven settings each
(`benchmarks/results/micro-tuning.json`). Without more likelihood in the loss the preference trainings of a small model
lower the probability of whatever a rejected reply contains, until dialogues fall apart. A regression head has no
likelihood term. What learns from whole dialogues passes over them 4 times for code and 8 times for pages
(`TaskKind.dialogue_epochs`); the actor learns from pairs of replies in one pass for both.

Learning rates: each learner has that of a model of a million parameters and that of 8 billion (`Hyperparameters` of its
rule), and `MEDIUM` has that of 135 million. Between two of these sizes the logarithm of the rate is interpolated by
that of the size, and rounded to two digits. The sources are in docs/training.md. At a rate of 2e-7, the paper's for 8
billion parameters, a few hundred steps do not change a small model (`sweet.training.movement`).

An adapter (LoRA) gets ten times the rate of the whole model: its matrices start from zero and are multiplied with each
other, and over many models and data sets its best rate was ten times the whole model's, whatever the rank (Schulman et
al., LoRA Without Regret, 2025). The values used are recorded with the results.
"""

from __future__ import annotations

import math

from sweet.credit.base import Hyperparameters
from sweet.credit.registry import rule_class
from sweet.tasks.base import ProtocolName
from sweet.training.config import TrainingConfig

LARGE = 100_000_000
"""Number of parameters from which the paper's values apply, but for the learning rate."""

SIZES = (2e6, 135e6, 7e9)
"""Parameters up to which a model has the rate of the smallest, at which it has that of `MEDIUM`, and from which it has
the paper's. The packaged agents have one million."""

MEDIUM: dict[str, float] = {
    **dict.fromkeys(("sft", "rft"), 5e-5),
    **dict.fromkeys(("multi-turn-dpo", "sweet", "critic", "regression"), 2e-5),
}
"""Learning rates of the whole model at 135 million parameters: a tenth of what moved an adapter of SmolLM2-135M. Those
of other learners have not been measured at this size, and are interpolated."""

LORA = 10.0
"""Ratio of an adapter's learning rate to that of the whole model."""

CRITICS: dict[str, tuple[Hyperparameters, Hyperparameters]] = {
    "critic": (
        Hyperparameters(lr=2e-7, nll=0.01, epochs=4, batch=8),
        Hyperparameters(lr=7e-5, nll=1.0, epochs=2, batch=8),
    ),
    "regression": (
        Hyperparameters(lr=2e-7, nll=0.0, epochs=4, batch=8),
        Hyperparameters(lr=1.5e-4, nll=0.0, epochs=2, batch=8),
    ),
}
"""Those of critics, for large and for small models. The kind of task decides the epochs of a large one."""


def defaults(learner: str, *, large: bool) -> Hyperparameters:
    """Return the default values of a critic (`CRITICS`) or of a credit rule, by its name."""
    if learner in CRITICS:
        paper, small = CRITICS[learner]
        return paper if large else small
    rule = rule_class(learner)
    return rule.large if large else rule.small


def usual_rate(learner: str, parameters: int, *, lora: bool) -> float:
    """Return the default learning rate of a whole model, or of an adapter; other arguments as of `resolve`."""
    import numpy as np

    rates = [defaults(learner, large=False).lr, MEDIUM.get(learner), defaults(learner, large=True).lr]
    log_rates = {math.log(size): math.log(rate) for size, rate in zip(SIZES, rates, strict=True) if rate is not None}
    rate = float(f"{math.exp(np.interp(math.log(parameters), [*log_rates], [*log_rates.values()])):.2g}")
    return float(f"{LORA * rate:.6g}") if lora else rate


def resolve(
    config: TrainingConfig, learner: str, parameters: int, protocol: ProtocolName, dialogue_epochs: int = 4
) -> Hyperparameters:
    """Return the values that the user set, and for the others those for a model of this many parameters.

    Args:
        learner: critic, regression, or the name of a credit rule.
        dialogue_epochs: of the kind of task (`TaskKind.dialogue_epochs`).
    """
    large = parameters >= LARGE
    usual = defaults(learner, large=large)
    by_kind = learner in CRITICS or rule_class(learner).dialogue_epochs
    usual_epochs = dialogue_epochs if large and by_kind else usual.epochs
    usual_lr = usual_rate(learner, parameters, lora=config.lora is not None)
    # The published command for the critic has no likelihood term.
    usual_nll = 0.0 if learner == "critic" and protocol == "upstream" else usual.nll
    return Hyperparameters(
        lr=usual_lr if config.lr is None else config.lr,
        nll=usual_nll if config.nll is None else config.nll,
        epochs=config.epochs or usual_epochs,
        batch=config.batch or usual.batch,
    )
