"""The base of the rules that are policy gradients: their options, and how values are compared with each other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from statistics import fmean, stdev
from typing import Literal, TypeVar

from pydantic import Field

from sweet.credit.base import CreditRule, Hyperparameters
from sweet.learn.components import Objective, PolicyGradient
from sweet.tasks.base import ProtocolName

EPSILON = 1e-4
"""Added to a standard deviation."""

Key = TypeVar("Key", bound=Hashable)


class ClippedRule(CreditRule):
    """A rule of the clipped policy gradient (`sweet.learn.components.PolicyGradient`)."""

    large = Hyperparameters(lr=1e-6, nll=0.0, epochs=1, batch=64)
    small = Hyperparameters(lr=5e-4, nll=0.0, epochs=1, batch=64)

    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """How far the ratio of probabilities may fall below 1 before a token is clipped."""
    clip_high: float = Field(default=0.28, ge=0)
    """How far it may rise above 1; larger than clip-low is clip-higher (DAPO, arXiv 2503.14476)."""
    bound: float = Field(default=8.0, gt=1)
    """Tokens whose ratio is above this, or below its inverse, are left out and counted."""
    average: Literal["token", "dialogue"] = "token"
    """token: every token of a step weighs the same. dialogue: first the mean over the tokens of each dialogue."""

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(None, nll, policy=PolicyGradient(self.clip_low, self.clip_high, self.bound, self.average))


def normalised(values: Mapping[Key, float], *, std: bool) -> dict[Key, float]:
    """Return the distances of values to their mean, in standard deviations (of n - 1) if `std`.

    Values that are all equal, or a single one, have distances of 0.
    """
    if len(set(values.values())) < 2:
        return dict.fromkeys(values, 0.0)
    mean = fmean(values.values())
    scale = stdev(values.values()) + EPSILON if std else 1.0
    return {key: (value - mean) / scale for key, value in values.items()}
