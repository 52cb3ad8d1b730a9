"""The order of examples in an epoch, and the division of a step into micro-batches of each rank.

Every rank computes the division itself from the same sizes, so nothing is sent. All ranks run the same number of
forward passes: an engine that partitions the weights (ZeRO-3) fetches them from all ranks in each pass, and one that
averages gradients synchronises in each backward pass. A rank that has fewer groups than another, or none, computes a
small group once more without counting it: its groups come with a flag that is False for these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from sweet.learn.components import Example
from sweet.learn.sequences import TokenSequence

GPU_TOKENS = 16384
"""Default of `--micro-batch-tokens` on a GPU: tokens of one forward pass."""

Share = list[tuple[list[int], bool]]
"""Groups of indices, and whether each counts."""

PackFunction = Callable[[Sequence[Sequence[TokenSequence]], int], list[list[int]]]
"""Divides bundles into groups of indices under a token budget: `Scorer.pack`."""


def epoch_order(examples: Sequence[Example], seed: int, epoch: int, *, together: int | None = 1) -> list[int]:
    """The indices of the examples in the order of an epoch, drawn from (seed, epoch).

    Args:
        together: the most examples of one group (`Example.group`) that are kept adjacent. 1 shuffles single examples;
            None keeps each group whole: the groups are shuffled, and the examples within each. Otherwise each group is
            divided, in its own order, into the fewest pieces of nearly equal size, and the pieces are shuffled: the
            examples of a piece share the longest prefixes, and a batch has pieces of several groups.
    """
    generator = torch.Generator().manual_seed((seed << 16) + epoch)
    order: list[int] = torch.randperm(len(examples), generator=generator).tolist()
    if together == 1:
        return order
    groups: dict[str, list[int]] = {}
    for index in order:
        groups.setdefault(examples[index].group, []).append(index)
    if together is None:
        return [index for members in groups.values() for index in members]
    pieces = [piece for members in groups.values() for piece in _pieces(sorted(members), together)]
    shuffled: list[int] = torch.randperm(len(pieces), generator=generator).tolist()
    return [index for number in shuffled for index in pieces[number]]


def _pieces(members: Sequence[int], max_size: int) -> list[Sequence[int]]:
    """Divide into the fewest parts of at most `max_size`, whose sizes differ by at most one."""
    count = math.ceil(len(members) / max_size)
    ends = [len(members) * number // count for number in range(count + 1)]
    return [members[start:end] for start, end in pairwise(ends)]


def bundles(pool: Sequence[TokenSequence], examples: Sequence[Example]) -> list[list[TokenSequence]]:
    """The sequences of each example."""
    return [[pool[i] for i in example.sides] for example in examples]


def token_count(pool: Sequence[TokenSequence], examples: Sequence[Example]) -> int:
    """The tokens of both sides of the examples, counted as if nothing were shared."""
    return sum(len(pool[i].ids) for example in examples for i in example.sides)


def step_groups(
    pool: Sequence[TokenSequence], examples: Sequence[Example], pack: PackFunction, budget: int, world: int
) -> list[list[list[int]]]:
    """The micro-batches of a step on each of `world` ranks, as indices of `examples`.

    The largest examples are assigned first, each to the rank with the least work.
    """
    sizes = [token_count(pool, [example]) for example in examples]
    assigned: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        rank = min(range(world), key=lambda r: (loads[r], r))
        assigned[rank].append(index)
        loads[rank] += sizes[index]

    def packed(indices: list[int]) -> list[list[int]]:
        groups = pack(bundles(pool, [examples[i] for i in indices]), budget) if indices else []
        return [[indices[i] for i in members] for members in groups]

    return [packed(sorted(indices)) for indices in assigned]


def step_share(
    pool: Sequence[TokenSequence], examples: Sequence[Example], pack: PackFunction, budget: int, rank: int, world: int
) -> Share:
    """The micro-batches of a step that `rank` computes (see `step_groups`)."""
    groups = step_groups(pool, examples, pack, budget, world)
    smallest = min(range(len(examples)), key=lambda i: (token_count(pool, [examples[i]]), i))
    return _pad_share(groups[rank], max(map(len, groups)), [smallest])


def rank_groups(groups: Sequence[list[int]], rank: int, world: int) -> Share:
    """The groups that `rank` computes: every `world`-th, so that groups of similar size run at the same time."""
    if not groups:
        return []
    return _pad_share(list(groups[rank::world]), -(-len(groups) // world), groups[0][:1])


def _pad_share(groups: list[list[int]], count: int, filler: list[int]) -> Share:
    return [(group, True) for group in groups] + [(filler, False)] * (count - len(groups))
