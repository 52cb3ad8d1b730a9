"""The turns that `sweet rank` ranks: a seeded sample of some dialogues' turns, or those whose replies are given.

Protocol `upstream` ranks every turn of the first dialogues instead of a sample.

Turns of one dialogue are next to each other: they share a prefix, which the critic computes once for those that it
scores together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweet.datasets.layout import task_order
from sweet.errors import InputError
from sweet.learn.rows import CandidateRow, TurnKey
from sweet.runs.jsonl import read_jsonl
from sweet.stages.base import digest_of
from sweet.tasks.trajectory import Trajectory


def best_dialogues(trajectories: Sequence[Trajectory], rewards: Mapping[str, float | None]) -> list[Trajectory]:
    """Return that of each task which has the highest reward, of equal ones the last by its id."""
    known_rewards = {t.id: -math.inf if (reward := rewards.get(t.id)) is None else reward for t in trajectories}
    ordered = sorted(trajectories, key=lambda t: (known_rewards[t.id], t.id))
    best = {t.task_id: t.id for t in ordered}
    return [t for t in trajectories if best[t.task_id] == t.id]


def sample_turns(trajectories: Sequence[Trajectory], *, seed: int, limit: int) -> list[TurnKey]:
    """Draw at most so many of the agent's turns. The result depends on the seed, not on the order of the dialogues."""
    sampled = sorted(_agent_turns(trajectories), key=lambda turn: digest_of([seed, *turn]))[:limit]
    rank_of_dialogue: dict[str, int] = {}
    for rank, (dialogue, _) in enumerate(sampled):
        rank_of_dialogue.setdefault(dialogue, rank)
    return sorted(sampled, key=lambda turn: (rank_of_dialogue[turn[0]], turn[1]))


def first_turns(
    trajectories: Sequence[Trajectory], *, fraction: float = 1.0, limit: int | None = None
) -> list[TurnKey]:
    """Return all of the agent's turns in the first dialogues, as the published code does (protocol `upstream`).

    Args:
        trajectories: in the published order, see `published_order`.
        fraction: share of the dialogues, rounded up.
        limit: number of turns at most.
    """
    return _agent_turns(trajectories[: math.ceil(fraction * len(trajectories))])[:limit]


def published_order(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Order the dialogues of a rollout as the published code writes them: one of every task, then the next of each.
    Their order in the file depends on which dialogue ended first."""
    return sorted(trajectories, key=lambda dialogue: (dialogue.sample, task_order(dialogue.task_id)))


def turns_with_replies(
    trajectories: Sequence[Trajectory], replies: Mapping[TurnKey, CandidateRow], path: Path
) -> list[TurnKey]:
    """Return the turns for which replies are given.

    Args:
        path: the file of the replies, for the error.

    Raises:
        InputError: the dialogues have no such turn.
    """
    turns = set(_agent_turns(trajectories))
    unknown = next((key for key in replies if key not in turns), None)
    if unknown is not None:
        what = f"The file has replies for turn {unknown[1]} of dialogue {unknown[0]}, and the agent has no such turn."
        raise InputError(what, path=path, fix="omit --replies")
    return sorted(replies)


def missing_turns(turns: Sequence[TurnKey], path: Path) -> list[TurnKey]:
    """Return the turns that the file of an interrupted ranking does not have.

    Raises:
        InputError: it has others.
    """
    finished = {row.key for row in read_jsonl(path, CandidateRow)}
    if not finished <= set(turns):
        what = "The file has turns that are not chosen, so this ranking cannot be resumed."
        raise InputError(what, path=path, fix="another --seed")
    return [turn for turn in turns if turn not in finished]


def _agent_turns(trajectories: Sequence[Trajectory]) -> list[TurnKey]:
    return [(trajectory.id, index) for trajectory in trajectories for index in trajectory.agent_turns]
