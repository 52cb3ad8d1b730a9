"""GiGPO: turns are compared where dialogues of a task were in the same state (arXiv 2505.10978).

The state before a turn is what both sides have said. Turns whose states are equal or similar are a group. In dialogues
of free text few states are equal but the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from pydantic import Field

from sweet.credit.base import Batch, Models
from sweet.credit.groups import TurnRule, normalised
from sweet.learn.rows import TurnKey


class GiGPO(TurnRule):
    """A_t = A(dialogue) by `grpo` + weight * (gamma^(T - t) R - mean of the turns of the state) / (their standard
    deviation + epsilon), equations 3 to 8. The state is what both sides have said before the turn."""

    name = "gigpo"

    weight: float = Field(default=1.0, ge=0)
    """Of the advantages within a state."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount by turn."""
    similarity: float = Field(default=0.9, gt=0, le=1)
    """The least similarity of two states of a group: twice the matching words over the words of both; 1 for equal
    ones. The published code compares characters."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        episodes = self.of_dialogues(batch)
        for names in batch.groups().values():
            returns = {
                (name, turn): self.gamma**turns_left * batch.rewards[name]
                for name in names
                for turns_left, turn in enumerate(reversed(batch.dialogues[name].agent_turns))
            }
            advantages = {key: episodes.get(key[0], 0.0) for key in returns}
            for turns in self.states(batch, sorted(returns)):
                steps = normalised({key: returns[key] for key in turns}, std=self.std)
                advantages |= {key: advantages[key] + self.weight * step for key, step in steps.items()}
            yield advantages

    def states(self, batch: Batch, turns: Iterable[TurnKey]) -> Iterable[list[TurnKey]]:
        """Divide the turns of a task's dialogues by the state before them."""
        states: dict[Sequence[str], list[TurnKey]] = {}
        for name, turn in turns:
            history = batch.dialogues[name].dialogue_history[:turn]
            words = tuple(word for message in history for word in (message.role, *message.content.split()))
            is_exact = words in states or self.similarity == 1
            similar = [] if is_exact else get_close_matches(words, states, 1, self.similarity)
            states.setdefault(similar[0] if similar else words, []).append((name, turn))
        return states.values()
