"""The settings of a training that depend on what is learned and on the size of the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hyperparameters:
    """Attributes:
    lr: peak learning rate.
    nll: weight of the likelihood term.
    epochs: passes over the examples.
    batch: examples per step.
    """

    lr: float
    nll: float
    epochs: int
    batch: int
