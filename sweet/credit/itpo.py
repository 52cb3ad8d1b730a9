"""ITPO: the outcome, divided among the turns by an implicit reward model (arXiv 2603.23550).

The reward model is that of `istar`. The share of a turn in the reward of its dialogue is the softmax, over the turns of
the dialogue, of the turn's mean log-ratio per token times the mean length of a turn, over a temperature: the normalised
form of the paper. The published code trains the reward model by cross-entropy on the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from pydantic import Field

from sweet.credit.base import Batch, Models
from sweet.credit.groups import by_dialogue, normalised
from sweet.credit.istar import ImplicitRule
from sweet.learn.rows import TurnKey


class ITPO(ImplicitRule):
    """A_t = (G_t - mean of G over the turns of the group) / (standard deviation + epsilon), G_t = R times the sum of
    the shares of turn t and the later ones."""

    name = "itpo"

    temperature: float = Field(default=0.4, gt=0)
    """Of the softmax, in nats."""
    std: bool = True
    """Divide by the standard deviation of the returns of the group."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        for ratios in self.ratios(batch, models):
            length = fmean(len(values) for values in ratios.values())
            returns = {
                (name, turn): batch.rewards[name] * share
                for name, turn_ratios in by_dialogue(ratios).items()
                for turn, share in self.shares_left(turn_ratios, length).items()
            }
            yield normalised(returns, std=self.std)

    def shares_left(self, ratios: Mapping[int, Sequence[float]], length: float) -> dict[int, float]:
        """Return for each turn of a dialogue the sum of its share and those of the later turns."""
        weights = {
            turn: fmean(values) * self.reward_beta * length / self.temperature for turn, values in ratios.items()
        }
        highest = max(weights.values())
        shares = {turn: math.exp(weight - highest) for turn, weight in weights.items()}
        return {turn: sum(v for t, v in shares.items() if t >= turn) / sum(shares.values()) for turn in shares}
