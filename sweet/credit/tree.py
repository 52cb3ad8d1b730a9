"""Rules that compare dialogues which branch from one another, as an online training plays them (`branches`).

A branch has the first turns of another dialogue of its group, up to a turn that is drawn at random, and goes on by
itself: it tells what other replies would have brought there. A dialogue and its branches are a tree. A turn that
several dialogues share is learned once. Recorded dialogues have no branches: each is a tree of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from statistics import fmean, stdev

from pydantic import Field

from sweet.credit.base import Batch, Models
from sweet.credit.groups import EPSILON, TurnRule, normalised
from sweet.learn.rows import TurnKey

Paths = Mapping[str, list[TurnKey]]
"""The agent's turns of each dialogue of a group; one that was copied has the name of the dialogue that it is of."""


class TreeRule(TurnRule):
    """A policy gradient of trees."""

    branches: int = Field(default=3, ge=0, le=100)
    """Online: how many dialogues of a group branch from each of the others."""

    def of_turns(self, batch: Batch, models: Models) -> Iterator[dict[TurnKey, float]]:
        for names in batch.groups().values():
            rewards, paths = {name: batch.rewards[name] for name in names}, dict[str, list[TurnKey]]()
            holders: dict[TurnKey, str] = {}
            for name in names:
                dialogue = batch.dialogues[name]
                origin, branch_turn = dialogue.branched or (name, 0)
                paths[name] = [(origin if turn < branch_turn else name, turn) for turn in dialogue.agent_turns]
                for key in paths[name]:
                    holders[key] = key[0] if key[0] in rewards else holders.get(key, name)
            if len(set(rewards.values())) > 1:
                yield {(holders[key], key[1]): value for key, value in self.of_trees(paths, rewards).items()}

    @abstractmethod
    def of_trees(self, paths: Paths, rewards: Mapping[str, float]) -> dict[TurnKey, float]:
        """Return the advantages of the turns of a group, whose rewards are not all equal."""


class TreeGRPO(TreeRule):
    """A dialogue has the advantage by `grpo` among the dialogues of its tree, plus that among all of its group
    (arXiv 2509.21240); a turn has the sum of those of the dialogues that it is in."""

    name = "tree-grpo"

    def of_trees(self, paths: Paths, rewards: Mapping[str, float]) -> dict[TurnKey, float]:
        advantages, trees = normalised(rewards, std=self.std), dict[str, dict[str, float]]()
        for name, path in paths.items():
            trees.setdefault(path[0][0], {})[name] = rewards[name]
        for tree in trees.values():
            for name, value in normalised(tree, std=self.std).items():
                advantages[name] += value
        turn_advantages: dict[TurnKey, float] = {}
        for name, path in paths.items():
            for key in path:
                turn_advantages[key] = turn_advantages.get(key, 0.0) + advantages[name]
        return turn_advantages


class MultiturnReward(TreeRule):
    """A turn has the mean reward of the dialogues that go on from it (the multiturn-aware reward of CollabLLM, arXiv
    2502.00640), minus that of the dialogues that go on from the state before it, as in VinePPO (arXiv 2410.01679);
    divided by the standard deviation of the group's rewards."""

    name = "mr"

    def of_trees(self, paths: Paths, rewards: Mapping[str, float]) -> dict[TurnKey, float]:
        scale = stdev(rewards.values()) + EPSILON if self.std else 1.0
        rewards_after: dict[TurnKey | None, list[float]] = {}
        for name, path in paths.items():
            for key in (None, *path):
                rewards_after.setdefault(key, []).append(rewards[name])
        return {
            key: (fmean(rewards_after[key]) - fmean(rewards_after[previous])) / scale
            for path in paths.values()
            for previous, key in zip((None, *path), path, strict=False)
        }
