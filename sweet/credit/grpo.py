"""GRPO: the reward of a dialogue over the mean of its group is the advantage of all its tokens (arXiv 2402.03300)."""

from __future__ import annotations

from collections.abc import Mapping

from sweet.credit.clipped import normalised
from sweet.credit.groups import GroupRule


class GRPO(GroupRule):
    """A_i = (R_i - mean of the group) / (standard deviation of the group + epsilon), section 4.1.2 of
    arXiv 2402.03300."""

    name = "grpo"

    std: bool = True
    """Divide by the standard deviation of the group; without it the rule is Dr. GRPO's (arXiv 2503.20783)."""

    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        return normalised(rewards, std=self.std)
