"""Policy gradients that compare the rewards of a task's dialogues, and the base of other rules.

The dialogues of one task are a group. Every token that the agent wrote in a dialogue has the advantage of the dialogue.
A group whose rewards are all equal has none and is left out (`equal_groups`).

With rewards of turns (`turns`) returns are compared: G_t = r_t + gamma * G_(t+1), and the last turn has the reward R of
the dialogue too. The n-th turn of a dialogue is compared with the n-th turns of the others; one that has ended before
counts with its R.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from statistics import fmean, stdev
from typing import Literal, TypeVar

from pydantic import Field

from sweet.credit.base import (
    Batch,
    Credit,
    CreditRule,
    Hyperparameters,
    Models,
    OnlineRule,
    Values,
    discounted,
    nothing_to_learn,
)
from sweet.learn.components import Objective, PolicyGradient
from sweet.learn.rows import TurnKey
from sweet.tasks.base import ProtocolName
from sweet.tasks.trajectory import Trajectory

EPSILON = 1e-4
"""Added to a standard deviation."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ClippedRule(CreditRule):
    """A rule of the clipped policy gradient (`sweet.learn.components.PolicyGradient`)."""

    large = Hyperparameters(lr=1e-6, nll=0.0, epochs=1, batch=64)
    small = Hyperparameters(lr=3.3e-4, nll=0.0, epochs=2, batch=128)

    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """How far the ratio of probabilities may fall below 1 before a token is clipped."""
    clip_high: float = Field(default=0.28, ge=0)
    """How far it may rise above 1; larger than clip-low is clip-higher (DAPO, arXiv 2503.14476)."""
    bound: float = Field(default=8.0, gt=1)
    """Tokens whose ratio is above this, or below its inverse, are left out and counted."""
    average: Literal["token", "dialogue"] = "token"
    """token: every token of a step weighs the same. dialogue: first the mean over the tokens of each dialogue."""

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(None, nll, policy=PolicyGradient(self.clip_low, self.clip_high, self.bound, self.average))


def normalised(values: Mapping[Key, float], *, std: bool) -> dict[Key, float]:
    """Return the distances of values to their mean, in standard deviations (of n - 1) if `std`.

    Values that are all equal, or a single one, have distances of 0.
    """
    if len(set(values.values())) < 2:
        return dict.fromkeys(values, 0.0)
    mean = fmean(values.values())
    scale = stdev(values.values()) + EPSILON if std else 1.0
    return {key: (value - mean) / scale for key, value in values.items()}


def by_dialogue(turns: Mapping[TurnKey, Value]) -> dict[str, dict[int, Value]]:
    """Return what turns have by dialogue, and then by turn, in the same order."""
    values: dict[str, dict[int, Value]] = {}
    for (name, turn), value in turns.items():
        values.setdefault(name, {})[turn] = value
    return values


class GroupRule(OnlineRule, ClippedRule):
    """A policy gradient that compares the returns of a task's dialogues, turn by turn."""

    reads = "scores"
    grouped = True

    turns: str = Field(default="", pattern=r"^[A-Za-z0-9_.,-]*$")
    """Names of the rewards of turns that count beside the reward of the dialogue, separated by commas."""
    weight: float = 1.0
    """Of the rewards of turns; that of the dialogue has 1."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount by turn."""
    states: bool = False
    """The rewards of turns are values of states: a turn is worth gamma times the value after it, minus that before it
    (Ng, Harada and Russell 1999); 0 before the first turn, unchanged by a turn without one."""

    @property
    def turn_rewards(self) -> frozenset[str]:
        return frozenset(filter(None, self.turns.split(",")))

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        names = [name for names in batch.groups().values() for name in names]
        returns = {name: self.returns(batch.dialogues[name], batch.rewards[name]) for name in names}
        policy: dict[str, dict[int, Values]] = {name: {} for name in names}
        for number in range(max(map(len, returns.values()), default=1) - 1):
            turn_returns = {name: values[min(number, len(values) - 1)] for name, values in returns.items()}
            for name, advantage in self.of_dialogues(batch, turn_returns).items():
                if number < len(returns[name]) - 1:
                    policy[name][batch.dialogues[name].agent_turns[number]] = advantage
        credits = [Credit(name, policy=turns) for name, turns in policy.items() if turns]
        if not credits:
            raise nothing_to_learn("The dialogues of each task have equal rewards", batch)
        return credits

    def returns(self, dialogue: Trajectory, outcome: float) -> list[float]:
        """Return the returns G_t of the agent's turns, in order, and behind them the outcome."""
        rewards: list[float] = []
        state: dict[str, float] = {}
        for row in (dialogue.dialogue_history[index].rewards or {} for index in dialogue.agent_turns):
            turn_rewards = {name: value for name, value in row.items() if name in self.turn_rewards}
            previous_value, state = sum(state.values()), state | turn_rewards
            change = self.gamma * sum(state.values()) - previous_value
            rewards.append(self.weight * (change if self.states else sum(turn_rewards.values())))
        return [*discounted([*rewards[:-1], rewards[-1] + outcome], self.gamma), outcome]

    def of_dialogues(self, batch: Batch, values: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return the advantages of the dialogues whose group has different values, by default rewards.

        A session counts once in its group, and each further branch of it is compared in the place of its first row.
        """
        advantages: dict[str, float] = {}
        for names in batch.groups().values():
            rewards = {name: (values or batch.rewards)[name] for name in names}
            sessions = {name: batch.dialogues[name].session for name in names}
            first = {name: name if session not in rewards else session for name, session in sessions.items()}
            group = {name: value for name, value in rewards.items() if first[name] == name}
            if len(set(group.values())) > 1:
                advantages |= self.advantages(group)
            for name in [name for name in names if name not in group]:
                peers = {other: value for other, value in group.items() if other != first[name]} | {name: rewards[name]}
                if len(set(peers.values())) > 1:
                    advantages[name] = self.advantages(peers)[name]
        return advantages

    @abstractmethod
    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        """Return the advantages of the dialogues of one group by their rewards, which are not all equal."""


class GRPO(GroupRule):
    """A_i = (R_i - mean of the group) / (standard deviation of the group + epsilon), section 4.1.2 of arXiv
    2402.03300."""

    name = "grpo"

    std: bool = True
    """Divide by the standard deviation of the group; without it the rule is Dr. GRPO's (arXiv 2503.20783)."""

    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        return normalised(rewards, std=self.std)


class RLOO(GroupRule):
    """A_i = R_i - mean of the rewards of the other dialogues of the group (arXiv 2402.14740).

    The ratio of probabilities, which the paper does not have, corrects for recorded dialogues.
    """

    name = "rloo"

    clip_high: float = Field(default=0.2, ge=0)
    """How far the ratio may rise above 1 before a token is clipped."""

    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        other_count = len(rewards) - 1
        total = sum(rewards.values())
        return {name: reward - (total - reward) / other_count for name, reward in rewards.items()}


class TurnRule(OnlineRule, ClippedRule):
    """A policy gradient with an advantage for each turn."""

    reads = "scores"
    grouped = True

    std: bool = True
    """Divide by standard deviations, of the dialogues of a group and of its turns."""

    def of_dialogues(self, batch: Batch) -> dict[str, float]:
        """Return the advantages of the dialogues by `grpo`, of those whose group has different rewards."""
        return GRPO(std=self.std).of_dialogues(batch)

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        credits: list[Credit] = []
        for advantages in self.of_turns(batch, models):
            if any(advantages.values()):
                credits += [Credit(name, policy=policy) for name, policy in by_dialogue(advantages).items()]
        if not credits:
            raise nothing_to_learn("All turns of each task have the same advantage", batch)
        return credits

    @abstractmethod
    def of_turns(self, batch: Batch, models: Models) -> Iterable[Mapping[TurnKey, float]]:
        """Return the advantages of the turns of each group. A group in which all are 0 is left out."""
