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


def dealt(sizes: Sequence[int], packed: Callable[[list[int]], list[list[int]]], world: int) -> list[list[list[int]]]:
    """The groups of a step's examples, by rank; `packed` makes groups of the examples that a rank is dealt.

    The largest examples are dealt first, each to the rank that has the least to do.
    """
    hands: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        least = min(range(world), key=lambda r: (loads[r], r))
        hands[least].append(index)
        loads[least] += sizes[index]
    return [packed(sorted(hand)) if hand else [] for hand in hands]


def own_share(sizes: Sequence[int], packed: Callable[[list[int]], list[list[int]]], rank: int, world: int) -> Share:
    """The groups of a step's examples that `rank` computes (`dealt`). With one rank all is its share."""
    groups = dealt(sizes, packed, world)
    smallest = min(range(len(sizes)), key=lambda i: (sizes[i], i))
    return _even(groups[rank], max(map(len, groups)), [smallest])


def own_groups(groups: Sequence[list[int]], rank: int, world: int) -> Share:
    """The groups that `rank` computes: every `world`-th, those of similar size beside each other."""
    if not groups:
        return []
    return _even(list(groups[rank::world]), -(-len(groups) // world), groups[0][:1])


def _even(groups: list[list[int]], count: int, filler: list[int]) -> Share:
    return [(group, True) for group in groups] + [(filler, False)] * (count - len(groups))
