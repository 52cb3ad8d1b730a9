"""From the rows of a run to what a training learns from: sequences in its pool, and examples that point at them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sweet.errors import SweetError
from sweet.hints import Hint, stage
from sweet.learn.data import Example
from sweet.learn.tokens import ReplyText
from sweet.stages.base import digest_of
from sweet.stages.rows import Pair, Preference
from sweet.tasks.trajectory import Trajectory
from sweet.training.trainer import Training


def hold_out(preferences: list[Preference], share: float, seed: int) -> tuple[list[Preference], list[Preference]]:
    """Preferences to train on and to measure on, apart by task. A share of less than one task is none."""
    tasks = sorted({p.task_id for p in preferences}, key=lambda task: digest_of([seed, "holdout", task]))
    apart = set(tasks[: math.floor(share * len(tasks))])
    return [p for p in preferences if p.task_id not in apart], [p for p in preferences if p.task_id in apart]


def dialogue_examples(
    training: Training,
    dialogues: dict[str, Trajectory],
    items: Sequence[Preference | str],
    *,
    reveal: bool,
    goals: Mapping[str, float] | None = None,
) -> list[Example]:
    """Examples of whole dialogues: preferences, or dialogues alone by id; with the `goals` of dialogues where given.
    Those of a task are kin."""

    def side(name: str) -> tuple[int, ...]:
        found = training.pool.find(name)
        if found is not None:
            return found
        if name not in dialogues:
            raise SweetError(
                f"The dialogue {name} is not among the rollouts.",
                where=training.inputs[0].id,
                fix=Hint(stage("label"), " again, from scores of these rollouts"),
            )
        trajectory = dialogues[name]
        encoded = training.encoder.dialogue(
            trajectory,
            training.system,
            hidden=trajectory.task.hidden if reveal else None,
            recipe=training.config.recipe,
            max_length=training.max_length,
        )
        return training.pool.put(name, encoded.sequences, encoded.dropped)

    wanted_names = [n for item in items for n in ([item] if isinstance(item, str) else [item.chosen, item.rejected])]
    coming = [dialogues[name] for name in dict.fromkeys(wanted_names) if name in dialogues]
    said = [t.dialogue_history[i].said for t in coming for i in t.agent_turns]
    training.encoder.prepare(said, [t.task.hidden for t in coming] if reveal else [])

    def wanted(*names: str) -> tuple[float, ...]:
        return () if goals is None else tuple(goals[name] for name in names)

    def example(item: Preference | str) -> Example:
        if isinstance(item, str):
            return Example(item, side(item), group=dialogues[item].task.id, goals=wanted(item))
        goals = wanted(item.chosen, item.rejected)
        return Example(item.name, side(item.chosen), side(item.rejected), group=item.task_id, goals=goals)

    return training.fitting(items, example)


def pair_examples(training: Training, pairs: Sequence[Pair]) -> list[Example]:
    """Examples of single turns, without the training-time information. Those of a dialogue are kin."""

    def example(pair: Pair) -> Example:
        replies = [
            ReplyText(pair.chosen, pair.chosen_token_ids, pair.chosen_ended),
            ReplyText(pair.rejected, pair.rejected_token_ids, pair.rejected_ended),
        ]
        rows, dropped = training.encoder.turn(
            pair.observation, replies, turn=pair.turn, name=f"Pair {pair.id}", max_length=training.max_length
        )
        chosen, rejected = training.pool.put(pair.id, rows, dropped)
        return Example(pair.id, (chosen,), (rejected,), group=pair.trajectory_id)

    return training.fitting(pairs, example)
