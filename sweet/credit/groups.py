"""Rules that compare the rewards of a task's dialogues: the base of `grpo` and `rloo`.

The group are the dialogues of one task. Every token that the agent wrote in a dialogue has the dialogue's advantage. A
group whose rewards are all equal has none and is left out; trainings count such groups (`equal_groups`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from sweet.credit.base import Batch, Credit, Models, nothing_to_learn
from sweet.credit.clipped import ClippedRule


class GroupRule(ClippedRule):
    """A policy gradient with an advantage for each dialogue."""

    reads = "scores"
    online = True
    grouped = True

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        advantages = self.of_dialogues(batch)
        if not advantages:
            raise nothing_to_learn("The dialogues of each task have equal rewards", batch)
        return [
            Credit(name, policy=dict.fromkeys(batch.dialogues[name].agent_turns, advantage))
            for name, advantage in advantages.items()
        ]

    def of_dialogues(self, batch: Batch) -> dict[str, float]:
        """Return the advantages of the dialogues whose group has different rewards."""
        found: dict[str, float] = {}
        for names in batch.groups().values():
            rewards = {name: batch.rewards[name] for name in names}
            if len(set(rewards.values())) > 1:
                found |= self.advantages(rewards)
        return found

    @abstractmethod
    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        """Return the advantages of the dialogues of one group, whose rewards are not all equal."""
