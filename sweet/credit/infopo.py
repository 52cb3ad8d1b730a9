"""InfoPO: a turn is worth what the human's reply to it changes in the agent's own next turn (arXiv 2603.00656).

No reference solution and no reward is needed, so a group of dialogues with equal rewards teaches too. This part of the
advantage fades where the rewards of the group differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean, stdev

from pydantic import Field

from sweet.credit.base import Batch, Models
from sweet.credit.groups import TurnRule, normalised
from sweet.learn.rows import TurnKey
from sweet.tasks.trajectory import Trajectory, unprompted

NOTHING = "No information found."
"""The published text of a reply that says nothing."""


class InfoPO(TurnRule):
    """A_t = A(dialogue) by `grpo` + weight * sigmoid(-s / temperature) * (r_t - mean of r over the turns of the group)
    / (standard deviation + epsilon), s the standard deviation of the group's rewards; r_t is the mean over the tokens
    of the agent's next turn y of log pi(y | o) - log pi(y | o without the reply). The last turn has no such part."""

    name = "infopo"

    weight: float = Field(default=0.5, ge=0)
    """Of what the replies change."""
    temperature: float = Field(default=0.05, gt=0)
    """How fast that part fades with the standard deviation of the group's rewards."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        groups = batch.groups()
        dialogues = [batch.dialogues[name] for names in groups.values() for name in names]
        silenced = {(d.id, turn): silent(d, turn, after) for d in dialogues for turn, after in pairwise(d.agent_turns)}
        # Without the recorded prompts both are encoded alike.
        answered = [d.model_copy(update={"dialogue_history": unprompted(d.dialogue_history)}) for d in dialogues]
        informed, blind = models.logprobs("policy", answered), models.logprobs("policy", list(silenced.values()))
        gains: dict[TurnKey, float] = {}
        for (name, turn), dialogue in silenced.items():
            after = dialogue.agent_turns[-1]
            if after in informed[name] and after in blind[dialogue.id]:
                gains[name, turn] = fmean(informed[name][after].tokens) - fmean(blind[dialogue.id][after].tokens)
        episodes = self.of_dialogues(batch)
        for names in groups.values():
            spread = stdev(batch.rewards[name] for name in names) if len(names) > 1 else 0.0
            scale = self.weight / (1 + math.exp(min(spread / self.temperature, 700.0)))
            steps = normalised({key: gain for key, gain in gains.items() if key[0] in names}, std=self.std)
            turns = [(name, turn) for name in names for turn in batch.dialogues[name].agent_turns]
            yield {key: episodes.get(key[0], 0.0) + scale * steps.get(key, 0.0) for key in turns}


def silent(dialogue: Trajectory, turn: int, after: int) -> Trajectory:
    """Return a dialogue up to the agent's turn `after`, whose replies since the one at `turn` say nothing."""
    history = unprompted(dialogue.dialogue_history[: after + 1])
    masked = [message.model_copy(update={"content": NOTHING}) for message in history[turn + 1 : after]]
    name = f"{dialogue.id} without the reply to {turn}"
    return dialogue.model_copy(update={"id": name, "dialogue_history": (*history[: turn + 1], *masked, history[after])})
