"""The store of finished sequences finds the longest common prefix, within its memory limit."""

from __future__ import annotations

import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from sweet.llm.kvcache import BLOCK, CachedSequence, PrefixStore


def tensors(size: int) -> list[torch.Tensor]:
    return [torch.zeros(1, size, 1)]


IDS = st.lists(st.integers(0, 2), min_size=0, max_size=4 * BLOCK)


@given(held=st.lists(IDS, max_size=6), asked=IDS)
def test_the_longest_common_prefix_is_found(held: list[list[int]], asked: list[int]) -> None:
    store = PrefixStore(1 << 20)
    for ids in held:
        store.add(ids, tensors(len(ids)))
    found = store.find(asked)
    blocks = 0
    for ids in held:
        common = 0
        while common < min(len(ids), len(asked)) and ids[common] == asked[common]:
            common += 1
        blocks = max(blocks, common // BLOCK)
    if found is None:
        assert blocks == 0
    else:
        saved, common = found
        assert list(saved.ids[:common]) == asked[:common]
        assert common == min(len(saved.ids), len(asked)) or saved.ids[common] != asked[common]
        assert common // BLOCK == blocks, "no other sequence shares more blocks"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(BLOCK, 80)), max_size=40), st.integers(0, 800))
def test_memory_is_limited_and_accounted_for(added: list[tuple[int, int]], capacity: int) -> None:
    store = PrefixStore(capacity)
    for start, size in added:
        store.add(range(start, start + size), tensors(size))
        assert store.used <= capacity
        assert store.used == sum(saved.size for saved in store._entries.values())
        assert set(store._prefix_hashes.values()) <= set(store._entries)
    store.clear()
    assert store.used == 0
    assert store.find(range(100)) is None


def test_the_least_recently_used_are_evicted() -> None:
    draw = random.Random(0)
    texts = [[draw.randrange(99) for _ in range(BLOCK)] for _ in range(4)]
    store = PrefixStore(3 * CachedSequence((), tensors(BLOCK)).size)
    for text in texts[:3]:
        store.add(text, tensors(BLOCK))
    assert store.find(texts[0])
    store.add(texts[3], tensors(BLOCK))
    assert store.find(texts[0])
    assert store.find(texts[1]) is None


def test_covers() -> None:
    store = PrefixStore(1 << 20)
    text = list(range(3 * BLOCK))
    assert not store.covers(text)
    store.add(text, tensors(len(text)))
    assert store.covers(text)
    assert store.covers([*text, 1, 2])
    assert not store.covers([*text, *range(BLOCK)])
