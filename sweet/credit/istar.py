"""iStar: implicit step rewards by a reward model that is trained in turns with the policy (arXiv 2509.19199).

The reward model begins as the model that the policy starts from. On each batch it first learns by DPO over whole
dialogues, the better against the worse of each task, with the sampler mu as the reference. Then r_t = beta * the sum
over a turn's tokens of log(reward model / mu) is the reward of the turn, and its advantage is that of its dialogue plus
`weight` times the distance of r_t to the rewards of all turns of the task's dialogues. No model sees the training-time
information. A training on recorded dialogues trains the reward model on all of them before the policy's first step; the
weights that it led to are recorded, and a training that is resumed learns from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Literal

from pydantic import Field

from sweet.credit.base import Batch, Credit, Models, RewardTraining, nothing_to_learn
from sweet.credit.groups import RLOO, GroupRule, normalised
from sweet.learn.components import Objective
from sweet.learn.rows import Preference


class IStar(GroupRule):
    """A_t = A(dialogue) + weight * (r_t - mean of r over the turns of the group)."""

    name = "istar"
    trains_reward = True

    weight: float = Field(default=1.0, ge=0)
    """Of the advantages of turns."""
    step: Literal["mean", "std", "leave-one-out"] = "mean"
    """What a turn's reward is compared with: mean, the mean over all turns of the task's dialogues; std, the same in
    standard deviations; leave-one-out, the mean over the other turns."""
    episode: Literal["grpo", "rloo"] = "grpo"
    """The rule of the dialogue's advantage."""
    std: bool = True
    """With episode=grpo: divide by the standard deviation of the rewards of the group."""
    reward_beta: float = Field(default=0.05, gt=0)
    """Weight of the reward model's log-ratios."""
    reward_lr: float | None = Field(default=None, gt=0)
    """Learning rate of the reward model, which is constant; default: twice the policy's."""
    reward_epochs: int = Field(default=1, ge=1)
    """Passes of the reward model over the couples of better and worse dialogues of a batch."""
    reward_batch: int = Field(default=32, ge=1)
    """Couples for each update of the reward model."""

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        couples = [Credit(preference) for preference in self.preferences(batch)]
        if not couples:
            raise nothing_to_learn("The dialogues of each task have equal rewards", batch)
        objective = Objective(self.reward_beta, 0.0, "none")
        models.train_reward(
            batch, couples, objective, RewardTraining(self.reward_epochs, self.reward_batch, self.reward_lr)
        )
        groups = [names for names in batch.groups().values() if len(names) > 1]
        dialogues = [batch.dialogues[name] for names in groups for name in names]
        learned, sampled = models.logprobs("reward", dialogues), models.logprobs("sampler", dialogues)
        episodes = self.of_dialogues(batch)
        credits = []
        for names in groups:
            rewards = {
                (name, turn): self.reward_beta * (sum(found.tokens) - sum(sampled[name][turn].tokens))
                for name in names
                for turn, found in learned[name].items()
            }
            steps = self.of_turns(rewards)
            for name in names:
                own = {turn: value for (owner, turn), value in steps.items() if owner == name}
                policy = {turn: episodes.get(name, 0.0) + self.weight * value for turn, value in own.items()}
                credits += [Credit(name, policy=policy)] if any(policy.values()) else []
        return credits

    def preferences(self, batch: Batch) -> list[Preference]:
        """Return every two dialogues of a task with different rewards."""
        found = []
        for task, names in batch.groups().items():
            best_first = sorted(names, key=lambda name: -batch.rewards[name])
            for high, low in combinations(best_first, 2):
                top, bottom = batch.rewards[high], batch.rewards[low]
                if top > bottom:
                    found.append(
                        Preference(task_id=task, chosen=high, rejected=low, chosen_reward=top, rejected_reward=bottom)
                    )
        return found

    def of_turns(self, rewards: Mapping[tuple[str, int], float]) -> dict[tuple[str, int], float]:
        """Return the advantages of the turns of one group, by dialogue and turn."""
        distances = normalised(rewards, std=self.step == "std")
        # r - mean of the others = (r - mean of all) n / (n - 1).
        scale = len(rewards) / max(1, len(rewards) - 1) if self.step == "leave-one-out" else 1.0
        return {key: scale * distance for key, distance in distances.items()}

    def advantages(self, rewards: Mapping[str, float]) -> dict[str, float]:
        """Return the advantages of the dialogues of one group."""
        return RLOO().advantages(rewards) if self.episode == "rloo" else normalised(rewards, std=self.std)
