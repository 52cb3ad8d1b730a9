"""Hyperparameters that depend on the size of the model, where the user does not set them.

The paper trains models of 8 billion parameters at a learning rate of 2e-7. A model of one million parameters does not
change at that rate, and without more likelihood in the loss its preference trainings lower the probability of whatever
a rejected reply contains, until dialogues fall apart. Small models therefore get the values that did best on the
validation tasks of the micro dataset, of eleven settings each (`benchmarks/results/micro-tuning.json`). A regression
head has no likelihood term; on held-out tasks it ordered as many preferences correctly at 1.5e-4 as at higher rates.
The paper has no warm-up on every dialogue (sft): a large model gets the usual rate of instruction tuning. What learns
from whole dialogues passes over them 4 times for code and 8 times for pages (`TaskKind.dialogue_epochs`); the actor
learns from pairs of replies in one pass for both. The values used are recorded with the results.

An adapter (LoRA) gets ten times the rate of the whole model: its matrices start from zero and are multiplied with each
other, and over many models and data sets its best rate was ten times the whole model's, whatever the rank (Schulman et
al., LoRA Without Regret, 2025).
"""

from __future__ import annotations

from sweet.credit.base import Hyperparameters
from sweet.credit.registry import rule_class
from sweet.tasks.base import ProtocolName
from sweet.training.config import TrainingConfig

LARGE = 100_000_000
"""Number of parameters from which the paper's values apply."""

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
    usual_lr = float(f"{LORA * usual.lr:.6g}") if config.lora is not None else usual.lr
    # The published command for the critic has no likelihood term.
    usual_nll = 0.0 if learner == "critic" and protocol == "upstream" else usual.nll
    return Hyperparameters(
        lr=usual_lr if config.lr is None else config.lr,
        nll=usual_nll if config.nll is None else config.nll,
        epochs=config.epochs or usual_epochs,
        batch=config.batch or usual.batch,
    )
