"""The dialogues that rejection fine-tuning (`--method rft`) imitates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweet.errors import SweetError
from sweet.hints import Hint, option, stage
from sweet.preferences.label import usable_dialogues
from sweet.tasks.scores import RewardRule
from sweet.tasks.trajectory import Trajectory


def dialogues_to_imitate(
    dialogues: Mapping[str, Trajectory], rewards: Mapping[str, float], rule: RewardRule, *, source: str
) -> list[str]:
    """Return the ids of the dialogues that are imitated, in order.

    Args:
        source: id of the scores, for the error.

    Raises:
        SweetError: no dialogue qualifies.
    """
    usable = usable_dialogues(dialogues.values(), rewards)
    ids = select_best(sorted((dialogue.id, dialogue.task_id) for dialogue in usable), rewards, rule)
    if not ids:
        raise SweetError(
            "No dialogue solved its task, so there is nothing to fine-tune on."
            if rule.solved is not None
            else "No dialogue is better than another one of its task, so there is nothing to fine-tune on.",
            where=source,
            fix=Hint(stage("rollout"), " with more ", option("samples"), ", then ", stage("eval")),
        )
    return ids


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
