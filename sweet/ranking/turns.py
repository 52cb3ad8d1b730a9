"""The turns that `sweet rank` ranks: a share of those of some dialogues, or those whose replies are there already.

The turns of a dialogue come one after the other: what is scored together shares what it begins with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweet.errors import InputError
from sweet.stages.base import digest_of
from sweet.stages.rows import CandidateRow
from sweet.tasks.trajectory import Trajectory

Key = tuple[str, int]
"""A turn: the id of its dialogue, and its index in the history."""


@dataclass(frozen=True)
class Place:
    """A turn to rank: the dialogue and the index of the turn in its history."""

    trajectory: Trajectory
    turn: int

    @property
    def key(self) -> Key:
        return (self.trajectory.id, self.turn)


def sample_places(
    trajectories: Sequence[Trajectory], *, seed: int, fraction: float = 1.0, limit: int | None = None
) -> list[Place]:
    """The share of turns that the seed draws, whatever the order of the dialogues."""
    everything = _places(trajectories)
    drawn = sorted(everything, key=lambda place: digest_of([seed, *place.key]))
    count = math.ceil(fraction * len(everything))
    chosen = drawn[: count if limit is None else min(count, limit)]
    first: dict[str, int] = {}
    for number, place in enumerate(chosen):
        first.setdefault(place.trajectory.id, number)
    return sorted(chosen, key=lambda place: (first[place.trajectory.id], place.turn))


def given_places(trajectories: Sequence[Trajectory], given: Mapping[Key, CandidateRow], path: Path) -> list[Place]:
    """The turns whose replies are given.

    Args:
        path: the file in which they stand.

    Raises:
        InputError: the dialogues have no such turn.
    """
    places = {place.key: place for place in _places(trajectories)}
    lost = next((key for key in given if key not in places), None)
    if lost is not None:
        what = f"There are replies at turn {lost[1]} of the dialogue {lost[0]}, and the agent has no such turn."
        raise InputError(what, path=path, fix="sweet rank without --replies")
    return [places[key] for key in sorted(given)]


def _places(trajectories: Sequence[Trajectory]) -> list[Place]:
    return [Place(trajectory, turn) for trajectory in trajectories for turn in trajectory.agent_turns]
