"""Ranks divide a step's work: all of it, once, with the same number of forward passes on each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.learn.batches import rank_groups, step_share
from sweet.learn.components import Example
from sweet.learn.logprobs import batches
from sweet.learn.sequences import TokenSequence


def share(sizes: list[int], budget: int, rank: int, world: int) -> list[tuple[list[int], bool]]:
    """What a rank computes of examples of these sizes."""
    pool = [TokenSequence((0,) * size, ()) for size in sizes]
    examples = [Example(str(index), (index,)) for index in range(len(sizes))]

    def pack(bundles: Sequence[Sequence[TokenSequence]], budget: int) -> list[list[int]]:
        return list(batches([len(row.ids) for [row] in bundles], budget))

    return step_share(pool, examples, pack, budget, rank, world)


SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 7), st.integers(1, 120))
def test_every_example_counts_once_and_ranks_run_equally_many_passes(sizes: list[int], world: int, budget: int) -> None:
    shares = [share(sizes, budget, rank, world) for rank in range(world)]
    assert len({len(one) for one in shares}) == 1
    counted = [index for one in shares for group, counts in one if counts for index in group]
    assert sorted(counted) == list(range(len(sizes)))
    for group, counts in (item for one in shares for item in one):
        assert len(group) == 1 or max(sizes[i] for i in group) * len(group) <= budget
        assert counts or sizes[group[0]] == min(sizes)


@given(SIZES, st.integers(1, 120))
def test_one_rank_works_as_without_ranks(sizes: list[int], budget: int) -> None:
    alone = [(group, True) for group in batches(sizes, budget)]
    assert share(sizes, budget, 0, 1) == alone
    assert rank_groups(list(batches(sizes, budget)), 0, 1) == alone


def test_large_and_small_examples_are_distributed_evenly() -> None:
    sizes = [100, 1, 1, 60, 40, 1]
    loads = [sum(sizes[i] for group, _ in share(sizes, 1000, rank, 2) for i in group) for rank in (0, 1)]
    assert max(loads) <= 102


@pytest.mark.parametrize("count", [1, 2, 5])
def test_groups_are_distributed_in_turn_and_padded(count: int) -> None:
    groups = [[number, number + 10] for number in range(count)]
    shares = [rank_groups(groups, rank, 2) for rank in (0, 1)]
    assert len(shares[0]) == len(shares[1]) == (count + 1) // 2
    assert sorted(group for one in shares for group, counts in one if counts) == groups
    assert rank_groups([], 1, 2) == []
