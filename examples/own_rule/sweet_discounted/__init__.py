"""The credit rule `discounted`: the advantage of a dialogue, smaller for the turns that are further from its end."""

from __future__ import annotations

from typing import cast

from pydantic import Field

from sweet.credit.base import Batch, Credit, Models
from sweet.credit.groups import GRPO


class Discounted(GRPO):
    """A_t = decay^(turns of the agent after t) * the advantage of the dialogue by grpo."""

    name = "discounted"

    decay: float = Field(default=0.9, gt=0, le=1)
    """The weight that is left for each turn further from the end."""

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        found = []
        for credit in super().credit(batch, models):
            advantages = cast(dict[int, float], credit.policy)  # grpo has one number for each turn, none for tokens
            turns = sorted(advantages, reverse=True)
            weights = {turn: self.decay**place * advantages[turn] for place, turn in enumerate(turns)}
            found.append(Credit(credit.of, policy=weights))
        return found
