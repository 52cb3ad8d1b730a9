"""Who computes what, where several ranks share the work.

Every rank works this out for itself, from the same sizes, so nothing is sent. All ranks take the same number of
forwards: an engine that keeps the weights in parts (ZeRO-3) fetches them from all ranks in each, and one that averages
gradients meets in each backward. A rank that has fewer groups than another, or none at all, computes something small
once more and leaves it out of the sums: its groups come with `counts`, which is False for those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Share = list[tuple[list[int], bool]]
"""Groups of indices, and whether each counts."""


def assign_groups(
    sizes: Sequence[int], pack: Callable[[list[int]], list[list[int]]], world: int
) -> list[list[list[int]]]:
    """The groups of a step's examples, by rank; `packed` makes groups of the examples that a rank is dealt.

    The largest examples are dealt first, each to the rank that has the least to do.
    """
    assigned: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        rank = min(range(world), key=lambda r: (loads[r], r))
        assigned[rank].append(index)
        loads[rank] += sizes[index]
    return [pack(sorted(indices)) if indices else [] for indices in assigned]


def rank_share(sizes: Sequence[int], pack: Callable[[list[int]], list[list[int]]], rank: int, world: int) -> Share:
    """The groups of a step's examples that `rank` computes (`dealt`). With one rank all is its share."""
    groups = assign_groups(sizes, pack, world)
    smallest = min(range(len(sizes)), key=lambda i: (sizes[i], i))
    return _pad_share(groups[rank], max(map(len, groups)), [smallest])


def rank_groups(groups: Sequence[list[int]], rank: int, world: int) -> Share:
    """The groups that `rank` computes: every `world`-th, those of similar size beside each other."""
    if not groups:
        return []
    return _pad_share(list(groups[rank::world]), -(-len(groups) // world), groups[0][:1])


def _pad_share(groups: list[list[int]], count: int, filler: list[int]) -> Share:
    return [(group, True) for group in groups] + [(filler, False)] * (count - len(groups))
