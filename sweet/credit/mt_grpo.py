"""MT-GRPO: rewards of turns beside the outcome (arXiv 2505.11821), as published and without its bias.

With baseline=index each reward of a turn is normalised over the turns of the same place in the group, and a turn gets
the sum of those from it to the end. How many baselines that sum subtracts depends on where the dialogue stops, which
the agent decides: the gradient is biased (verl-project/verl#7244). With baseline=return one number that does not depend
on the dialogue is subtracted from the return of each turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Models, discounted
from sweet.credit.groups import TurnRule, normalised
from sweet.errors import UsageError
from sweet.learn.rows import TurnKey


class MTGRPO(TurnRule):
    """A_t = A(dialogue) by `grpo` + weight * the sum over k >= t of the normalised rewards of turns k; with
    baseline=return + weight * (the sum over k >= t of the rewards - mean of the whole sums of the other dialogues)."""

    name = "mt-grpo"

    turns: str = Field(default="", pattern=r"^[A-Za-z0-9_.,-]*$")
    """Names of the rewards of turns, separated by commas; all of them by default."""
    weight: float = Field(default=1.0, gt=0)
    """Of the rewards of turns."""
    baseline: Literal["index", "return"] = "index"
    """index: as published, biased. return: the mean return of the group's other dialogues, not divided by a standard
    deviation."""

    @property
    def turn_rewards(self) -> frozenset[str]:
        return frozenset(filter(None, self.turns.split(",")))

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        episodes, groups = self.of_dialogues(batch), [names for names in batch.groups().values() if len(names) > 1]
        if groups and not any(batch.dialogues[name].turn_rewards for names in groups for name in names):
            fix = "rewards of turns by the scorer, by tools or by an import, or --algorithm igpo"
            raise UsageError("No turn has a reward of its own.", where=batch.source or None, fix=fix)
        for names in groups:
            rewards = {name: self.rewards(batch, name) for name in names}
            for index in range(max(map(len, rewards.values())) if self.baseline == "index" else 0):
                turn_values = {name: values[index] for name, values in rewards.items() if index < len(values)}
                for name, value in normalised(turn_values, std=self.std).items():
                    rewards[name][index] = value
            returns = {name: sum(values) if self.baseline == "return" else 0.0 for name, values in rewards.items()}
            baselines = {name: (sum(returns.values()) - value) / (len(names) - 1) for name, value in returns.items()}
            yield {
                (name, turn): episodes.get(name, 0.0) + self.weight * (value - baselines[name])
                for name, values in rewards.items()
                for turn, value in zip(batch.dialogues[name].agent_turns, discounted(values, 1.0), strict=True)
            }

    def rewards(self, batch: Batch, name: str) -> list[float]:
        """Return the sum of the rewards of each of the agent's turns."""
        dialogue = batch.dialogues[name]
        rows = [dialogue.turn_rewards.get(turn, {}) for turn in dialogue.agent_turns]
        return [sum(row[key] for key in row if not self.turns or key in self.turn_rewards) for row in rows]
