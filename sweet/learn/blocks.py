"""A prefix tree as blocks of slots, and as segments of a few blocks: which slots each block attends to.

The slots of a block can only attend to the path of its first slot to the root and to the block itself, because a slot
before the block whose subtree reaches into the block contains the block's first slot too. So each block attends to
those keys alone, with the tree's rule (`sweet.learn.tree`) as its mask: time and memory grow with slots times depth,
while one mask over the whole tree would grow with slots times slots.

A segment is computed by one forward pass of the model's layers: the whole tree, or a part of it that reads the stored
keys and values of the slots before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sweet.learn.tree import Tree

BLOCK = 256
"""Slots of a block. Half of the work on a block's own keys is wasted, while many small blocks cost kernel launches."""

SEGMENT_BLOCKS = 2
"""Blocks of a segment, whose states a CPU's caches hold: with more rows the products of the linear layers wait for the
memory, and take two to three times as long per row from 2,048 rows on."""


@dataclass
class Block:
    """The slots `[start, stop)`, the slots they may attend to (`keys`), and which of those each sees: [stop - start,
    keys]."""

    start: int
    stop: int
    keys: Tensor
    visible: Tensor
    _masks: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """The additive mask of the scores: [1, 1, slots, keys]."""
        if dtype not in self._masks:
            zeros = torch.zeros(self.visible.shape, dtype=dtype, device=self.visible.device)
            self._masks[dtype] = zeros.masked_fill_(~self.visible, torch.finfo(dtype).min)[None, None]
        return self._masks[dtype]


def build_blocks(ends: Tensor, slots: slice, block: int) -> list[Block]:
    """Some slots of a tree in blocks of `block`.

    Args:
        ends: those of `Tree`, [slots].
    """
    numbers = torch.arange(slots.stop, device=ends.device)
    blocks = []
    for start in range(slots.start, slots.stop, block):
        block_slots = numbers[start : start + block]
        keys = torch.cat([(ends[:start] > start).nonzero()[:, 0], block_slots])
        visible = (keys[None] <= block_slots[:, None]) & (block_slots[:, None] < ends[keys][None])
        blocks.append(Block(start, start + len(block_slots), keys, visible))
    return blocks


class BlockTree:
    """A tree as blocks, computed whole or segment by segment.

    Args:
        tree: the layout.
        device: where it is computed.
        block: slots of a block; BLOCK by default.
        regather: store no gathered keys for the backward pass (see `_regather_in_backward`).

    Attributes:
        segment: the blocks of the current segment.
        stored: the keys and values of each layer up to the current segment, each [1, heads, slots, size], stored slot
            by slot, in which order they are gathered fastest. Empty if there is one segment.
    """

    segment: list[Block]

    def __init__(self, tree: Tree, device: torch.device, *, block: int | None, regather: bool) -> None:
        self.regather = regather
        self.ends = torch.tensor(tree.ends, device=device)
        self.stored: dict[Any, tuple[Tensor, Tensor]] = {}
        self._block = block or BLOCK

    def segments(self, size: int) -> Iterator[slice]:
        """The slots of each segment of at most `size` slots, one after the other, while attention is computed for these
        slots only."""
        count = len(self.ends)
        for start in range(0, count, size):
            slots = slice(start, min(start + size, count))
            self.segment = build_blocks(self.ends, slots, self._block)
            yield slots

    def extended(self, module: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer up to the current segment, given those of the segment."""
        slots = slice(self.segment[0].start, self.segment[-1].stop)
        if slots == slice(0, len(self.ends)):
            return key, value
        if module not in self.stored:
            self.stored[module] = self._empty(key), self._empty(value)
        for stored, current in zip(self.stored[module], (key, value), strict=True):
            stored[:, :, slots] = current
        return self.stored[module]

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_empty(1, len(self.ends), like.shape[1], like.shape[3]).transpose(1, 2)


def gather(tensor: Tensor, keys: Tensor) -> Tensor:
    """Some slots of [1, heads, slots, size], whose memory is in the order of the slots."""
    # A layer may be on another device than the first one, where the tree is.
    return tensor.transpose(1, 2).index_select(1, keys.to(tensor.device)).transpose(1, 2)
