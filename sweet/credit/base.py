"""The interface of credit rules.

A rule is a class derived from `CreditRule`, with its options as fields. It gets a `Batch` (dialogues with rewards, or
what a stage made of them: preferences, pairs, candidates) and returns one `Credit` for each example: what is to be
encoded, and its weights on the loss components. Weights are given by turn, one number for all its tokens or one for
each. A rule that needs probabilities asks the `Models` of the training for them.

A rule has no state: everything that changes during a training is in the `Models`, which are part of its checkpoints. So
the same rule serves a training on recorded dialogues (`sweet train-actor --algorithm NAME`) and one that plays its own
dialogues (`sweet train --algorithm NAME`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from sweet.errors import SweetError
from sweet.learn.components import Objective
from sweet.learn.rows import CandidateRow, Pair, Preference
from sweet.runs.manifest import Kind
from sweet.tasks.base import ProtocolName
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import Trajectory

Values = float | Sequence[float]
"""A weight for all tokens of a turn, or one for each of them, the thought's tokens and the end of the turn included."""

REWARD_LR = 2.0
"""A reward model's learning rate over the policy's: 1e-6 over 5e-7 in arXiv 2509.19199."""

Which = Literal["policy", "start", "average", "sampler", "reward"]
"""A model of the training.

    policy   as it is now
    start    the model it started from
    average  the moving average of the policy's weights (`CreditRule.average_rate`); before the first step the start
    sampler  what sampled: the recorded log-probabilities where they are of the encoded ids, elsewhere the policy's
    reward   the reward model, which begins as the start and is trained by `Models.train_reward`; of a rule with
             `value_head` it tells values of states (`TurnLogprobs`)
"""


@dataclass(frozen=True)
class Batch:
    """What a rule learns from. What the rule does not read is empty.

    Attributes:
        dialogues: by id, each with its agent's system prompt, and with the rewards of turns that its score has.
        rewards: of the dialogues that have one, by id.
        preferences, pairs, candidates: the rows of such artifacts.
        rule: what the rewards of this kind of task mean.
        source: id of the artifact that is learned from, for errors.
    """

    dialogues: Mapping[str, Trajectory]
    rule: RewardRule
    rewards: Mapping[str, float] = field(default_factory=dict)
    preferences: Sequence[Preference] = ()
    pairs: Sequence[Pair] = ()
    candidates: Sequence[CandidateRow] = ()
    source: str = ""

    def groups(self) -> dict[str, list[str]]:
        """Return the ids of the dialogues with a reward that no fault ended, by task, both in sorted order."""
        groups: dict[str, list[str]] = {}
        for name in sorted(self.rewards):
            dialogue = self.dialogues.get(name)
            if dialogue is not None and not dialogue.ended_by_fault and dialogue.agent_turns:
                groups.setdefault(dialogue.task_id, []).append(name)
        return dict(sorted(groups.items()))

    def equal_groups(self) -> list[str]:
        """Return the tasks whose dialogues (`groups`) have equal rewards, or of which there is only one."""
        return [task for task, names in self.groups().items() if len({self.rewards[name] for name in names}) < 2]


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return for each reward the sum of it and the later ones, each times gamma for every step until it."""
    return list(accumulate(reversed(rewards), lambda later, reward: reward + gamma * later))[::-1]


@dataclass(frozen=True)
class TurnLogprobs:
    """Log-probabilities at the tokens of a turn, at temperature 1, in nats.

    Attributes:
        tokens: of the tokens themselves; of a value function, what it expects in the states before them.
        top_ids, top_logprobs: the most likely ids at each position, if they were asked for.
    """

    tokens: tuple[float, ...]
    top_ids: tuple[tuple[int, ...], ...] = ()
    top_logprobs: tuple[tuple[float, ...], ...] = ()


Subject = str | Preference | Pair
"""What an example is made of: a dialogue by its id, two dialogues, or two replies to one observation, of which the
second may be missing."""


@dataclass(frozen=True)
class Credit:
    """One example and its weights on the loss components.

    Attributes:
        of: what is encoded. Policy gradient and distillation weigh the tokens of a dialogue or of
            a reply that stands alone (`Pair.rejected` is None).
        preference: weight of the comparison, of a `Preference` or a `Pair`.
        likelihood: weight of the likelihood of the dialogue, the reply or the chosen side; where tokens are weighted,
            of the same turns.
        policy: advantages by turn (its index in the dialogue's history); turns that are missing have none.
        distil: the teacher's log-probabilities by turn; turns that are missing have none.
        goals: what a value function learns by turn, of the state before the turn, or of that before each of its tokens.
    """

    of: Subject
    preference: float = 1.0
    likelihood: float = 1.0
    policy: Mapping[int, Values] = field(default_factory=dict)
    distil: Mapping[int, TurnLogprobs] = field(default_factory=dict)
    goals: Mapping[int, Values] = field(default_factory=dict)

    @property
    def turns(self) -> set[int]:
        """The turns whose tokens are weighted."""
        return {*self.policy, *self.distil, *self.goals}


@dataclass(frozen=True)
class RewardTraining:
    """How a reward model learns from a batch.

    Attributes:
        epochs: passes over the examples.
        batch: examples for each update of the weights.
        lr: learning rate, which is constant; None for `REWARD_LR` times the policy's.
    """

    epochs: int
    batch: int = 32
    lr: float | None = None


@dataclass(frozen=True)
class Hyperparameters:
    """The settings of a training that depend on what is learned and on the size of the model.

    Attributes:
        lr: peak learning rate.
        nll: weight of the likelihood term.
        epochs: passes over the examples.
        batch: examples per step.
    """

    lr: float
    nll: float
    epochs: int
    batch: int


class Models(Protocol):
    """The models of a training, as a rule may use them."""

    def logprobs(
        self, model: Which, dialogues: Sequence[Trajectory], *, informed: bool = False, top: int = 0
    ) -> dict[str, dict[int, TurnLogprobs]]:
        """Return the log-probabilities of the agent's turns, by dialogue and turn, without gradients.

        A turn that does not fit into the maximum length is missing.

        Args:
            informed: whether the model sees the training-time information, as a critic does.
            top: number of most likely ids to return at each token; not for the sampler.
        """

    def solutions(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, TurnLogprobs]]:
        """Return the policy's log-probabilities of the reference solution, had the agent answered with it at its turns,
        by dialogue and turn.

        A turn after which the solution does not fit into the maximum length is missing.
        """

    def train_reward(
        self, batch: Batch, credits: Sequence[Credit], objective: Objective, settings: RewardTraining
    ) -> None:
        """Train the reward model on examples of the batch, whose reference is the model that sampled.

        It goes on from where it was; its weights and its optimizer belong to the checkpoint of the training. Only for a
        rule with `trains_reward`.

        Raises:
            SweetError: a loss or gradient is not finite.
        """

    def advantages(self, dialogues: Sequence[Trajectory]) -> dict[str, dict[int, float]]:
        """Return A(o_t, a_t, c) of the agent's turns by the critic of the run, by dialogue and turn.

        They are in the critic's own unit: nats per token, or the scores of a regression head, whose zero has no
        meaning. A turn that does not fit into the maximum length is missing. Only for a rule with `asks_critic`.

        Raises:
            UsageError: the critic cannot be loaded.
        """


class CreditRule(BaseModel):
    """A credit rule. Its fields are its options, given as `--rule-option NAME=VALUE`.

    Attributes:
        name: of the rule.
        reads: the kind of artifact that a training on recorded dialogues reads; `scores` for a rule that needs rewards.
        online: whether the rule can learn from the dialogues that a training plays itself.
        large, small: hyperparameters for models of 100M parameters and more, and for small ones.
        grouped: whether it compares the rewards of a task's dialogues, so that equal ones teach nothing. The trainings
            then count the groups, and those of equal rewards.
        asks_critic: whether it asks for advantages (`Models.advantages`), so that the run must have a critic.
        trains_reward: whether it trains a reward model (`Models.train_reward`).
        value_head: whether that model is a value function, with a head that begins at 0. It goes from step to step, so
            the rule learns only from dialogues that a training plays itself.
        dialogue_epochs: whether the kind of task decides the epochs of a large model (`TaskKind.dialogue_epochs`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: ClassVar[str]
    reads: ClassVar[Kind]
    online: ClassVar[bool] = False
    grouped: ClassVar[bool] = False
    asks_critic: ClassVar[bool] = False
    trains_reward: ClassVar[bool] = False
    value_head: ClassVar[bool] = False
    large: ClassVar[Hyperparameters]
    small: ClassVar[Hyperparameters]
    dialogue_epochs: ClassVar[bool] = False

    @property
    def average_rate(self) -> float | None:
        """How far the average moves to the policy's weights after each step; None for a rule that asks for none."""
        return None

    @property
    def turn_rewards(self) -> frozenset[str]:
        """The names of the rewards of turns that the rule reads (`Trajectory.turn_rewards`)."""
        return frozenset()

    @abstractmethod
    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        """Return the settings of the loss components.

        Args:
            beta: weight of the log-ratios of a preference loss, 0 for none.
            nll: weight of the likelihood.
        """

    @abstractmethod
    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        """Return the examples of a batch with their weights.

        Raises:
            SweetError: there is nothing to learn from; see `nothing_to_learn`.
        """


class OnlineRule(CreditRule):
    """A rule that can learn from the dialogues that a training plays itself."""

    online = True

    resample: int = Field(default=0, ge=0, le=100)
    """Online: how often the groups of a step whose rewards are equal are replaced by groups of other tasks (DAPO, arXiv
    2503.14476); their dialogues count too."""


def missing_rewards(rule: CreditRule, dialogues: Iterable[Trajectory]) -> str:
    """Say which rewards of turns a rule reads that none of the dialogues has; empty if there are none."""
    recorded = {name for dialogue in dialogues for row in dialogue.turn_rewards.values() for name in row}
    missing = ", ".join(sorted(rule.turn_rewards - recorded))
    return missing and f"No turn has a reward {missing}; there are: {', '.join(sorted(recorded)) or 'none'}."


class NothingToLearn(SweetError):
    """A batch teaches nothing by a rule: a training on recorded dialogues fails, an online one goes on to the next
    step."""


def nothing_to_learn(what: str, batch: Batch) -> NothingToLearn:
    """Return the error of a rule that finds nothing to learn in a batch."""
    return NothingToLearn(
        f"{what}, so there is nothing to learn.",
        where=batch.source or None,
        fix="more --samples in sweet rollout, then sweet eval",
    )
