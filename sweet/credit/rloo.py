"""RLOO: the advantage of a dialogue is its reward over the mean of the others of its task (arXiv 2402.14740)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from sweet.credit.groups import GroupRule


class RLOO(GroupRule):
    """A_i = R_i - mean of the rewards of the other dialogues of the group.

    The baseline of a dialogue does not depend on it, so the gradient has no bias. The paper has no ratio: its
    dialogues are of the policy itself. Here the ratio corrects for recorded ones, as for all policy gradients.
    """

    name = "rloo"

    clip_high: float = Field(default=0.2, ge=0)
    """How far the ratio may rise above 1 before a token is clipped."""

    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        others = len(rewards) - 1
        total = sum(rewards.values())
        return {name: reward - (total - reward) / others for name, reward in rewards.items()}
