"""Attention over a prefix tree, block by block.

The slots of a tree are taken in blocks. What the slots of a block may see is its first slot's path to the root and the
block itself: a slot before the block whose subtree reaches into it holds the block's first slot too. So each block
attends to those keys alone, with the tree's rule (`sweet.learn.tree`) as its mask: time and memory go with slots times
depth, where one mask over the whole tree would go with slots times slots. Gradients flow through the shared keys and
values; the keys gathered for a block are gathered again in the backward pass instead of being kept.

The model's own attention function does the work on each block, with whatever scaling, soft cap or sinks the model
gives it; only what it is given changes. It is replaced while a tree is computed (`planted`) and put back afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sweet.learn.tree import Tree

NAME = "sweet_tree"
"""What the replacement is called among the library's attention functions."""

TAKEN = ("sdpa", "eager")
"""Attention functions that take any mask."""

BLOCK = 256
"""Slots of a block: the keys of a block's own slots are waste by half, many small blocks cost calls."""


@dataclass
class Block:
    """The slots `[start, stop)`, the slots they may see, and which of those each sees: [stop - start, keys]."""

    start: int
    stop: int
    keys: Tensor
    seen: Tensor
    _masks: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def mask(self, kind: torch.dtype) -> Tensor:
        """What is added to the scores: [1, 1, slots, keys]."""
        if kind not in self._masks:
            zeros = torch.zeros(self.seen.shape, dtype=kind, device=self.seen.device)
            self._masks[kind] = zeros.masked_fill_(~self.seen, torch.finfo(kind).min)[None, None]
        return self._masks[kind]


def blocks_of(tree: Tree, device: torch.device, size: int) -> list[Block]:
    """The blocks of a tree, in order."""
    ends = torch.tensor(tree.ends, device=device)
    slots = torch.arange(len(tree.ids), device=device)
    blocks = []
    for start in range(0, len(tree.ids), size):
        stop = min(start + size, len(tree.ids))
        own = slots[start:stop]
        keys = torch.cat([(ends[:start] > start).nonzero()[:, 0], own])
        blocks.append(Block(start, stop, keys, (keys[None] <= own[:, None]) & (own[:, None] < ends[keys][None])))
    return blocks


_planted: ContextVar[tuple[str, list[Block]]] = ContextVar("planted")
"""The attention the model has of its own, and the blocks of the tree that is being computed."""


@contextmanager
def planted(model: Any, tree: Tree, device: torch.device) -> Iterator[None]:
    """While it is open, `model` computes a row of ids as this tree.

    Raises:
        ValueError: the model's attention cannot be replaced.
    """
    _register()
    own = str(model.config.get_text_config()._attn_implementation)
    if own not in TAKEN:
        raise ValueError(f"attention {own} takes no mask")
    with _replaced(model, own, blocks_of(tree, device, BLOCK)):
        yield


def replanted(model: Any) -> AbstractContextManager[None]:
    """What `planted` has opened now, to be opened again when layers are computed again in the backward pass."""
    now = _planted.get(None)
    return nullcontext() if now is None else _replaced(model, *now)


@contextmanager
def _replaced(model: Any, own: str, blocks: list[Block]) -> Iterator[None]:
    token = _planted.set((own, blocks))
    model.set_attn_implementation(NAME)
    try:
        if model.config.get_text_config()._attn_implementation != NAME:
            raise ValueError("the model's attention cannot be replaced")
        yield
    finally:
        model.set_attn_implementation(own)
        _planted.reset(token)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """Heads of one row, [1, heads, slots, size], to [1, slots, heads, size]."""
    from transformers import AttentionInterface

    library: Any = AttentionInterface
    own, blocks = _planted.get()
    attention = sys.modules[type(module).__module__].eager_attention_forward if own == "eager" else library()[own]

    def of(block: Block) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        def attended(part: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            chosen = keys.index_select(2, block.keys), values.index_select(2, block.keys)
            result: Tensor = attention(module, part, *chosen, block.mask(part.dtype), **more)[0]
            return result

        return attended

    pieces = []
    for block in blocks:
        part = query[:, :, block.start : block.stop]
        if torch.is_grad_enabled():
            again: Any = checkpoint(of(block), part, key, value, use_reentrant=False, preserve_rng_state=False)
            pieces.append(again)
        else:
            pieces.append(of(block)(part, key, value))
    return torch.cat(pieces, dim=1), None


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *_args, **_more: None)
