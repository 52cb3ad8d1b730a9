"""GRPO: the reward of a dialogue over the mean of its group is the advantage of all its tokens (arXiv 2402.03300).

The group are the dialogues of one task. A group whose rewards are all equal has no advantage and is left out.
"""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Credit, CreditRule, Models, nothing_to_learn
from sweet.credit.hyperparameters import Hyperparameters
from sweet.learn.components import Objective, PolicyGradient
from sweet.tasks.base import Recipe

EPSILON = 1e-4
"""Added to the standard deviation."""


class GRPO(CreditRule):
    """A_i = (R_i - mean of the group) / (standard deviation of the group + epsilon), equation in section 4.1.2."""

    name = "grpo"
    reads = "scores"
    online = True
    large = Hyperparameters(lr=1e-6, nll=0.0, epochs=1, batch=64)
    small = Hyperparameters(lr=5e-4, nll=0.0, epochs=1, batch=64)

    std: bool = True
    """Divide by the standard deviation of the group; without it the rule is Dr. GRPO's (arXiv 2503.20783)."""
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """How far the ratio of probabilities may fall below 1 before a token is clipped."""
    clip_high: float = Field(default=0.28, ge=0)
    """How far it may rise above 1; larger than clip-low is clip-higher (DAPO, arXiv 2503.14476)."""
    bound: float = Field(default=8.0, gt=1)
    """Tokens whose ratio is above this, or below its inverse, are left out and counted."""
    average: Literal["token", "dialogue"] = "token"
    """token: every token of a step weighs the same. dialogue: first the mean over the tokens of each dialogue."""

    def objective(self, beta: float, nll: float, recipe: Recipe) -> Objective:
        return Objective(None, nll, policy=PolicyGradient(self.clip_low, self.clip_high, self.bound, self.average))

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        advantages: dict[str, float] = {}
        for names in batch.groups().values():
            advantages |= self.advantages({name: batch.rewards[name] for name in names})
        if not advantages:
            raise nothing_to_learn("The dialogues of each task have equal rewards", batch)
        return [
            Credit(name, policy=dict.fromkeys(batch.dialogues[name].agent_turns, advantage))
            for name, advantage in advantages.items()
        ]

    def advantages(self, rewards: dict[str, float]) -> dict[str, float]:
        """Return the advantages of one group's dialogues; empty if all rewards are equal."""
        if len(set(rewards.values())) < 2:
            return {}
        mean = fmean(rewards.values())
        scale = stdev(rewards.values()) + EPSILON if self.std else 1.0
        return {name: (reward - mean) / scale for name, reward in rewards.items()}
