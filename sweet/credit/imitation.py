"""Imitation: of the dialogues that solved their task, or are its best (rejection fine-tuning), or of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweet.credit.base import Batch, Credit, CreditRule, Hyperparameters, Models, OnlineRule, nothing_to_learn
from sweet.learn.components import Objective
from sweet.preferences.label import learnable, usable_dialogues
from sweet.tasks.base import ProtocolName
from sweet.tasks.scores import RewardRule


class RejectionFineTuning(OnlineRule):
    """The likelihood of the agent's turns of the selected dialogues."""

    name = "rft"
    reads = "scores"
    large = Hyperparameters(lr=2e-7, nll=1.0, epochs=4, batch=32)
    small = Hyperparameters(lr=2e-3, nll=1.0, epochs=40, batch=32)
    dialogue_epochs = True

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(None, nll)

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        usable = usable_dialogues(batch.dialogues.values(), batch.rewards)
        selected = select_best(sorted((d.id, d.task_id) for d in usable), batch.rewards, batch.rule)
        if not selected:
            solves = batch.rule.solved is not None
            what = "No dialogue solved its task" if solves else "No dialogue is better than another one of its task"
            raise nothing_to_learn(what, batch)
        return [Credit(name) for name in selected]


def select_best(dialogues: Sequence[tuple[str, str]], rewards: Mapping[str, float], rule: RewardRule) -> list[str]:
    """Select dialogues, given as (id, task id), and keep their order.

    Where a reward counts as solved (see `sweet.tasks.scores.RewardRule`), those that solved their task are selected;
    otherwise the best of each task, unless all of its dialogues are equally good.
    """
    if rule.solved is not None:
        return [name for name, _ in dialogues if rewards[name] >= rule.solved]
    tasks: dict[str, list[str]] = {}
    for name, task in dialogues:
        tasks.setdefault(task, []).append(name)
    selected = set()
    for names in tasks.values():
        best = max(names, key=lambda name: rewards[name])
        if rewards[best] > min(rewards[name] for name in names):
            selected.add(best)
    return [name for name, _ in dialogues if name in selected]


class SupervisedFineTuning(CreditRule):
    """The likelihood of the agent's turns of each dialogue that no fault ended, good or bad: a warm-up, usually from
    another model (`--model`)."""

    name = "sft"
    reads = "rollouts"
    large = Hyperparameters(lr=2e-5, nll=1.0, epochs=1, batch=32)
    small = Hyperparameters(lr=5e-4, nll=1.0, epochs=1, batch=32)

    def objective(self, beta: float, nll: float, protocol: ProtocolName) -> Objective:
        return Objective(None, nll)

    def credit(self, batch: Batch, models: Models) -> list[Credit]:
        return [Credit(name) for name in sorted(d.id for d in batch.dialogues.values() if learnable(d))]
