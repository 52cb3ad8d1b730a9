"""Scripted dialogues in number: what the micro agent is built from, and what another model is warmed up on.

Their functions are none of the dataset's, and their rules any: who learns from them has met no task and does not know
what is typical.
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


def talks(
    count: int, *, seed: int, told_share: float, family: Family = MICRO
) -> Iterator[tuple[Instance, list[Message]]]:
    """Instances, each with a dialogue on it, system prompt first.

    Args:
        told_share: share of the dialogues in which the reference function stands in the request.
    """
    rng = random.Random(f"sweet {family.name} dialogues {seed}")
    for instance in islice(instances(CLONING, family), count):
        yield instance, dialogue(instance, rng, told=rng.random() < told_share, family=family)


def scripted_trajectories(count: int, *, seed: int, told_share: float, family: Family = MICRO) -> Iterator[Trajectory]:
    """The same dialogues as a rollout would have kept them. Where the reference stands in the request, it does so in
    the dialogue's first entry; the task is as always."""
    for number, (instance, messages) in enumerate(talks(count, seed=seed, told_share=told_share, family=family)):
        _, *said = messages
        yield Trajectory(
            id=f"scripted-{number:05d}",
            task=as_task(instance, f"{family.name}-scripted-{number:05d}"),
            dialogue_history=tuple(Turn.model_validate(message.model_dump()) for message in said),
            answer=read_move(said[-1].content, last=True, recipe="paper").answer or NO_ANSWER,
            seed=seed,
        )
