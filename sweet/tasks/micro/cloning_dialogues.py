"""Generate scripted dialogues from which the micro agent is built, and on which other models are warmed up.

Their functions are not in the dataset and their rules are drawn from all, so that a model trained on them has seen no
task and does not know which rules are typical of a function.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from sweet.tasks.base import NO_ANSWER, Message
from sweet.tasks.markers import read_move
from sweet.tasks.micro.dialogues import dialogue
from sweet.tasks.micro.family import MICRO, Family
from sweet.tasks.micro.generator import CLONING, Instance, as_task, instances
from sweet.tasks.trajectory import Trajectory, Turn


def cloning_dialogues(
    count: int, *, seed: int, told_share: float, family: Family = MICRO
) -> Iterator[tuple[Instance, list[Message]]]:
    """Yield instances, each with a dialogue on it, system prompt first.

    Args:
        told_share: share of the dialogues in which the request contains the reference function.
    """
    rng = random.Random(f"sweet {family.name} dialogues {seed}")
    for instance in islice(instances(CLONING, family), count):
        yield instance, dialogue(instance, rng, with_reference=rng.random() < told_share, family=family)


def scripted_trajectories(count: int, *, seed: int, told_share: float, family: Family = MICRO) -> Iterator[Trajectory]:
    """Yield the same dialogues as trajectories, as a rollout writes them.

    If the request contains the reference, it does so in the dialogue's first entry; the task is unchanged.
    """
    dialogues = cloning_dialogues(count, seed=seed, told_share=told_share, family=family)
    for number, (instance, messages) in enumerate(dialogues):
        _, *said = messages
        yield Trajectory(
            id=f"scripted-{number:05d}",
            task=as_task(instance, f"{family.name}-scripted-{number:05d}", family),
            dialogue_history=tuple(Turn.model_validate(message.model_dump()) for message in said),
            answer=read_move(said[-1].content, last=True, recipe="paper").answer or NO_ANSWER,
            seed=seed,
        )
