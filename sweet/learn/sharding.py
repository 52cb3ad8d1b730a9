"""Divides work among ranks.

Every rank computes the division itself from the same sizes, so nothing is sent. All ranks run the same number of
forward passes: an engine that partitions the weights (ZeRO-3) fetches them from all ranks in each pass, and one that
averages gradients synchronises in each backward pass. A rank that has fewer groups than another, or none, computes a
small group once more without counting it: its groups come with a flag that is False for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Share = list[tuple[list[int], bool]]
"""Groups of indices, and whether each counts."""


def assign_groups(
    sizes: Sequence[int], pack: Callable[[list[int]], list[list[int]]], world: int
) -> list[list[list[int]]]:
    """Divide the examples of a step among the ranks, and return each rank's groups of indices.

    The largest examples are assigned first, each to the rank with the least work.

    Args:
        sizes: of the examples.
        pack: divides a rank's examples into groups.
        world: number of ranks.
    """
    assigned: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        rank = min(range(world), key=lambda r: (loads[r], r))
        assigned[rank].append(index)
        loads[rank] += sizes[index]
    return [pack(sorted(indices)) if indices else [] for indices in assigned]


def rank_share(sizes: Sequence[int], pack: Callable[[list[int]], list[list[int]]], rank: int, world: int) -> Share:
    """The groups of a step's examples that `rank` computes (see `assign_groups`)."""
    groups = assign_groups(sizes, pack, world)
    smallest = min(range(len(sizes)), key=lambda i: (sizes[i], i))
    return _pad_share(groups[rank], max(map(len, groups)), [smallest])


def rank_groups(groups: Sequence[list[int]], rank: int, world: int) -> Share:
    """The groups that `rank` computes: every `world`-th, so that groups of similar size run at the same time."""
    if not groups:
        return []
    return _pad_share(list(groups[rank::world]), -(-len(groups) // world), groups[0][:1])


def _pad_share(groups: list[list[int]], count: int, filler: list[int]) -> Share:
    return [(group, True) for group in groups] + [(filler, False)] * (count - len(groups))
