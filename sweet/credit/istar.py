"""Implicit rewards of turns by a reward model that is trained in turns with the policy: iStar (arXiv 2509.19199).

The reward model begins as the policy does. On each batch it first learns by DPO over whole dialogues, the better
against the worse of each task, with the sampler mu as the reference. No model sees the training-time information. A
training on recorded dialogues trains the reward model on all of them before the policy's first step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Credit, Hyperparameters, Models, RewardTraining, nothing_to_learn
from sweet.credit.groups import RLOO, TurnRule, normalised
from sweet.learn.components import Objective
from sweet.learn.rows import Preference, TurnKey


class ImplicitRule(TurnRule):
    """A rule whose rewards of turns are the log-ratios of a reward model that it trains."""

    trains_reward = True
    small = Hyperparameters(lr=3e-4, nll=0.0, epochs=1, batch=32)  # a second pass over the tokens harms

    reward_beta: float = Field(default=0.05, gt=0)
    """Weight of the reward model's log-ratios."""
    reward_lr: float | None = Field(default=None, gt=0)
    """Learning rate of the reward model, which is constant; default: twice the policy's."""
    reward_epochs: int = Field(default=1, ge=1)
    """Passes of the reward model over the couples of better and worse dialogues of a batch."""
    reward_batch: int = Field(default=32, ge=1)
    """Couples for each update of the reward model."""

    def ratios(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, list[float]]]:
        """Train the reward model, and return for each group log(reward model / mu) at the tokens of each turn.

        Raises:
            NothingToLearn: the dialogues of each task have equal rewards.
        """
        couples = [Credit(preference) for preference in couples_of(batch)]
        if not couples:
            raise nothing_to_learn("The dialogues of each task have equal rewards", batch)
        settings = RewardTraining(self.reward_epochs, self.reward_batch, self.reward_lr)
        models.train_reward(batch, couples, Objective(self.reward_beta, 0.0, "none"), settings)
        groups = [names for names in batch.groups().values() if len(names) > 1]
        dialogues = [batch.dialogues[name] for names in groups for name in names]
        reward_logprobs, sampler_logprobs = models.logprobs("reward", dialogues), models.logprobs("sampler", dialogues)
        for names in groups:
            log_ratios: dict[TurnKey, list[float]] = {}
            for name in names:
                for turn, turn_logprobs in reward_logprobs[name].items():
                    pairs = zip(turn_logprobs.tokens, sampler_logprobs[name][turn].tokens, strict=True)
                    log_ratios[name, turn] = [logprob - sampler_logprob for logprob, sampler_logprob in pairs]
            yield log_ratios


class IStar(ImplicitRule):
    """A_t = A(dialogue) + weight * (r_t - mean of r over the turns of the group), where r_t = beta * the sum over the
    turn's tokens of log(reward model / mu), and mu is the sampler."""

    name = "istar"

    weight: float = Field(default=1.0, ge=0)
    """Of the advantages of turns."""
    step: Literal["mean", "std", "leave-one-out"] = "mean"
    """What a turn's reward is compared with: mean, the mean over all turns of the task's dialogues; std, the same in
    standard deviations; leave-one-out, the mean over the other turns."""
    episode: Literal["grpo", "rloo"] = "grpo"
    """The rule of the dialogue's advantage."""
    std: bool = True
    """With episode=grpo: divide by the standard deviation of the rewards of the group."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        episodes = self.of_dialogues(batch)
        for ratios in self.ratios(batch, models):
            steps = self.of_steps({key: self.reward_beta * sum(values) for key, values in ratios.items()})
            yield {key: episodes.get(key[0], 0.0) + self.weight * value for key, value in steps.items()}

    def of_steps(self, rewards: Mapping[TurnKey, float]) -> dict[TurnKey, float]:
        """Return the distances of the rewards of the turns of one group."""
        distances = normalised(rewards, std=self.step == "std")
        # r - mean of the others = (r - mean of all) n / (n - 1).
        scale = len(rewards) / max(1, len(rewards) - 1) if self.step == "leave-one-out" else 1.0
        return {key: scale * distance for key, distance in distances.items()}

    def of_dialogues(self, batch: Batch) -> dict[str, float]:
        """Return the advantages of the dialogues whose group has different rewards."""
        return RLOO().of_dialogues(batch) if self.episode == "rloo" else super().of_dialogues(batch)


def couples_of(batch: Batch) -> Sequence[Preference]:
    """Return every two dialogues of a task with different rewards."""
    preferences = []
    for task, names in batch.groups().items():
        best_first = sorted(names, key=lambda name: -batch.rewards[name])
        for high, low in combinations(best_first, 2):
            top, bottom = batch.rewards[high], batch.rewards[low]
            if top > bottom:
                preferences.append(
                    Preference(task_id=task, chosen=high, rejected=low, chosen_reward=top, rejected_reward=bottom)
                )
    return preferences
