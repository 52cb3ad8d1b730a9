"""The order of the examples of an epoch: single examples, pieces of groups, whole groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.learn.batches import epoch_order
from sweet.learn.components import Example
from sweet.runs.manifest import Kind
from sweet.training.config import TrainActorConfig, TrainConfig, TrainCriticConfig, adjacent, order_of

GROUPS = st.lists(st.integers(0, 5), max_size=40)


def examples(groups: Sequence[int]) -> list[Example]:
    return [Example(f"pair {index}", (index,), group=str(group)) for index, group in enumerate(groups)]


def pieces(order: Sequence[int]) -> list[list[int]]:
    """Return the runs of consecutive numbers."""
    return [[index for _, index in run] for _, run in groupby(enumerate(order), lambda item: item[1] - item[0])]


@given(groups=GROUPS, seed=st.integers(0, 2**16), together=st.one_of(st.none(), st.integers(1, 8)))
def test_every_example_once_and_the_same_each_time(groups: list[int], seed: int, together: int | None) -> None:
    made = examples(groups)
    order = epoch_order(made, seed, 1, together=together)
    assert sorted(order) == list(range(len(made)))
    assert order == epoch_order(made, seed, 1, together=together)


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 99), together=st.integers(2, 6))
def test_groups_are_divided_into_few_pieces_of_nearly_equal_size(sizes: list[int], seed: int, together: int) -> None:
    groups = [number for number, size in enumerate(sizes) for _ in range(size)]
    order = epoch_order(examples(groups), seed, 0, together=together)
    first = {sum(sizes[:number]): size for number, size in enumerate(sizes)}
    for start, size in first.items():
        inside = [index for index in order if start <= index < start + size]
        found = pieces([order.index(index) for index in range(start, start + size)])
        # Pieces of one group that happen to be neighbours in their order read as one.
        assert len(found) <= -(-size // together)
        assert sorted(inside) == list(range(start, start + size))


def test_a_piece_keeps_its_order_and_a_batch_has_several_groups() -> None:
    made = examples([number // 8 for number in range(64)])
    order = epoch_order(made, 0, 0, together=4)
    quarters = [order[start : start + 4] for start in range(0, 64, 4)]
    assert all(quarter == list(range(quarter[0], quarter[0] + 4)) and quarter[0] % 4 == 0 for quarter in quarters)
    assert order != epoch_order(made, 0, 1, together=4)
    groups = [{index // 8 for index in order[start : start + 8]} for start in range(0, 64, 8)]
    assert sum(len(group) == 2 for group in groups) >= 6


def test_five_are_divided_into_three_and_two() -> None:
    order = epoch_order(examples([0] * 5), 0, 0, together=4)
    assert order in ([0, 1, 2, 3, 4], [2, 3, 4, 0, 1])


@pytest.mark.parametrize(
    ("shuffle", "batch", "expected"),
    [("examples", 8, 1), ("pieces", 8, 4), ("pieces", 9, 4), ("pieces", 1, 1), ("grouped", 8, None)],
)
def test_a_piece_is_at_most_half_a_batch(shuffle: str, batch: int, expected: int | None) -> None:
    assert adjacent(shuffle, batch) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "reads", "expected"),
    [
        (TrainActorConfig(), "pairs", "pieces"),
        (TrainActorConfig(protocol="upstream"), "pairs", "examples"),
        (TrainActorConfig(algorithm="multi-turn-dpo"), "preferences", "examples"),
        (TrainActorConfig(algorithm="rft"), "scores", "examples"),
        (TrainActorConfig(algorithm="rft", shuffle="grouped"), "scores", "grouped"),
        (TrainCriticConfig(), "preferences", "pieces"),
        (TrainCriticConfig(shuffle="examples"), "preferences", "examples"),
        (TrainCriticConfig(protocol="upstream"), "preferences", "examples"),
        (TrainCriticConfig(protocol="upstream", shuffle="pieces"), "preferences", "pieces"),
        (TrainCriticConfig(variant="regression", target="real"), "scores", "examples"),
    ],
)
def test_pairs_and_preferences_of_a_critic_are_shuffled_in_pieces(
    config: TrainConfig, reads: Kind, expected: str
) -> None:
    assert order_of(config, reads) == expected


def test_examples_with_screenshots_are_shuffled_one_by_one() -> None:
    config = TrainCriticConfig(variant="regression")
    assert (order_of(config, "preferences"), order_of(config, "preferences", sees_pages=True)) == ("pieces", "examples")
