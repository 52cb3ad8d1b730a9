"""Which examples a step takes, and how they are parted: the loop trains by it, the dry run counts by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from sweet.learn.data import Example
from sweet.learn.sharding import Share, dealt, own_share
from sweet.learn.tokens import TokenSequence

GPU_TOKENS = 16384
"""Tokens of one forward pass on a GPU, where `--micro-batch-tokens` is not given."""

Packs = Callable[[Sequence[Sequence[TokenSequence]], int], list[list[int]]]
"""Indices of bundles in groups under a budget of tokens: `Scorer.packs`."""


def epoch_order(examples: Sequence[Example], seed: int, epoch: int, *, together: bool = False) -> list[int]:
    """The examples of an epoch in the order of its steps, drawn from (seed, epoch).

    `together` keeps kin beside each other: the families are drawn, and the examples within each.
    """
    random = torch.Generator().manual_seed((seed << 16) + epoch)
    order: list[int] = torch.randperm(len(examples), generator=random).tolist()
    if not together:
        return order
    kin: dict[str, list[int]] = {}
    for index in order:
        kin.setdefault(examples[index].kin, []).append(index)
    return [index for group in kin.values() for index in group]


def bundles(pool: Sequence[TokenSequence], examples: Sequence[Example]) -> list[list[TokenSequence]]:
    """The sequences of each example."""
    return [[pool[i] for i in example.sides] for example in examples]


def token_count(pool: Sequence[TokenSequence], examples: Sequence[Example]) -> int:
    """The tokens of both sides of the examples, as if nothing were shared."""
    return sum(len(pool[i].ids) for example in examples for i in example.sides)


def step_share(
    pool: Sequence[TokenSequence], examples: Sequence[Example], packs: Packs, budget: int, rank: int, world: int
) -> Share:
    """The micro-batches of a step's examples that `rank` computes."""
    return own_share(_sizes(pool, examples), _packer(pool, examples, packs, budget), rank, world)


def step_groups(
    pool: Sequence[TokenSequence], examples: Sequence[Example], packs: Packs, budget: int, world: int
) -> list[list[int]]:
    """The micro-batches of a step's examples, of all ranks."""
    by_rank = dealt(_sizes(pool, examples), _packer(pool, examples, packs, budget), world)
    return [group for groups in by_rank for group in groups]


def _sizes(pool: Sequence[TokenSequence], examples: Sequence[Example]) -> list[int]:
    return [token_count(pool, [example]) for example in examples]


def _packer(
    pool: Sequence[TokenSequence], examples: Sequence[Example], packs: Packs, budget: int
) -> Callable[[list[int]], list[list[int]]]:
    def packed(hand: list[int]) -> list[list[int]]:
        groups = packs(bundles(pool, [examples[i] for i in hand]), budget)
        return [[hand[i] for i in group] for group in groups]

    return packed
