"""SWEET's critic as dense credit for a policy gradient: a turn is weighed by the advantage that the critic gives it.

The critic reads the training-time information c, the policy does not. The advantages A(o_t, a_t, c) of the turns that
were taken (arXiv 2503.15478, equation 3) are normalised over all turns of the task's dialogues, so a critic whose
numbers are higher on some tasks gives these no larger weight.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from sweet.credit.base import Batch, Credit, Models, nothing_to_learn
from sweet.credit.groups import ClippedRule, TurnRule, normalised
from sweet.learn.rows import Pair, TurnKey


class SweetPG(TurnRule):
    """A_t = weight * (A(o_t, a_t, c) - mean over the turns of the group) / (standard deviation + epsilon), and with
    `episode` the advantage of the dialogue by `grpo` is added to that of each of its turns."""

    name = "sweet-pg"
    asks_critic = True

    weight: float = Field(default=1.0, gt=0)
    """Of the critic's advantages."""
    episode: bool = False
    """Add the dialogue's own advantage by its reward, as in grpo."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        groups = batch.groups()
        critic_advantages = models.advantages([batch.dialogues[name] for names in groups.values() for name in names])
        episodes = self.of_dialogues(batch) if self.episode else {}
        for names in groups.values():
            turns = {(name, turn): value for name in names for turn, value in critic_advantages[name].items()}
            steps = normalised(turns, std=self.std)
            yield {key: self.weight * step + episodes.get(key[0], 0.0) for key, step in steps.items()}


class SweetPGCandidates(ClippedRule):
    """Every candidate of `sweet rank` counts: A_k = (A(o_t, a_k, c) - mean of the turn's candidates) / (their standard
    deviation + epsilon), for each token of candidate k."""

    name = "sweet-pg-candidates"
    reads = "candidates"

    std: bool = True
    """Divide by the standard deviation of the turn's candidates."""

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        credits: list[Credit] = []
        for row in batch.candidates:
            values = {number: candidate.advantage for number, candidate in enumerate(row.candidates)}
            if len(set(values.values())) > 1:
                for number, advantage in normalised(values, std=self.std).items():
                    alone = Pair.of(row, f"c{number}", row.candidates[number])
                    credits.append(Credit(alone, policy={row.turn: advantage}))
        if not credits:
            raise nothing_to_learn("The candidates of each turn have equal advantages", batch)
        return credits
