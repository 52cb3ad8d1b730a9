"""PPO with a value function, by turn (Turn-PPO, arXiv 2512.17008) or by token (arXiv 1707.06347).

By turn a whole reply is one action, and what both sides have said before it is the state. A second model with a head,
which begins as the policy does, estimates the return of each state, read at the last token before the turn. The
advantages are those of generalised advantage estimation (arXiv 1506.02438) by the value function as it was, minus their
mean over the step and over their standard deviation; then the value function learns. By turn the ratio is that of the
whole reply and is clipped as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from operator import add, sub
from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Credit, Models, OnlineRule, RewardTraining, Values, discounted, nothing_to_learn
from sweet.credit.groups import ClippedRule, normalised
from sweet.learn.components import Objective
from sweet.tasks.base import ProtocolName


class PPO(OnlineRule, ClippedRule):
    """A_t = the sum over k >= t of (gamma lambda)^(k - t) (r_k + gamma V_k+1 - V_k); R is the reward r of the last
    action, and V is 0 behind it."""

    name = "ppo"
    reads = "scores"
    trains_reward = True
    value_head = True

    clip_high: float = Field(default=0.2, ge=0)
    """How far the ratio may rise above 1."""
    level: Literal["turn", "token"] = "turn"
    """What an action is."""
    gamma: float = Field(default=0.99, gt=0, le=1)
    """Discount by action; by token 1 is usual."""
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    """How much of later errors of the value function counts; by token 0.95 to 1 is usual."""
    std: bool = True
    """Divide the advantages of a step by their standard deviation."""
    value_lr: float | None = Field(default=None, gt=0)
    """Learning rate of the value function, which is constant; default: twice the policy's."""
    value_epochs: int = Field(default=1, ge=1)
    """Passes of the value function over the dialogues of a step."""

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        objective = super().objective(beta, nll, protocol)
        assert objective.policy is not None
        return replace(objective, policy=replace(objective.policy, by_turn=self.level == "turn"))

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        names, size = [name for names in batch.groups().values() for name in names], 1 if self.level == "turn" else None
        state_values = models.logprobs("reward", [batch.dialogues[name] for name in names])
        goals: dict[tuple[str, int, int], float] = {}  # by dialogue, turn and action
        advantages = dict(goals)
        for name in names:
            rows = {turn: row.tokens[:size] for turn, row in sorted(state_values[name].items())}
            actions = [(name, turn, place) for turn, row in rows.items() for place in range(len(row))]
            values = list(chain.from_iterable(rows.values()))
            targets = [self.gamma * value for value in values[1:]] + [batch.rewards[name]]
            gains = discounted(list(map(sub, targets, values)), self.gamma * self.gae_lambda)
            advantages |= dict(zip(actions, gains, strict=True))
            goals |= dict(zip(actions, map(add, values, gains), strict=True))
        if not goals:
            raise nothing_to_learn("No dialogue has a reward", batch)
        settings = RewardTraining(self.value_epochs, lr=self.value_lr)
        learned = [Credit(name, goals=turn_values) for name, turn_values in self.of_turns(goals).items()]
        models.train_reward(batch, learned, Objective(None, 0.0, values=True), settings)
        scaled = normalised(advantages, std=self.std)
        return [Credit(name, policy=turn_values) for name, turn_values in self.of_turns(scaled).items()]

    def of_turns(self, actions: Mapping[tuple[str, int, int], float]) -> dict[str, dict[int, Values]]:
        """Return the numbers of actions by dialogue and turn: one for each turn, or for each of its tokens."""
        dialogues: dict[str, dict[int, list[float]]] = {}
        for (name, turn, _), number in actions.items():
            dialogues.setdefault(name, {}).setdefault(turn, []).append(number)
        alone = self.level == "turn"
        return {name: {t: row[0] if alone else row for t, row in turns.items()} for name, turns in dialogues.items()}
