"""Attention over a prefix tree: block by block, or by one fused kernel (`sweet.learn.flex`).

Block by block: what the slots of a block may see is its first slot's path to the root and the block itself, for a slot
before the block whose subtree reaches into it holds the block's first slot too. So each block attends to those keys
alone, with the tree's rule (`sweet.learn.tree`) as its mask: time and memory go with slots times depth, where one mask
over the whole tree would go with slots times slots. Gradients flow through the shared keys and values; the keys
gathered for a block are gathered again in the backward pass instead of being kept.

torch's own attention does the work where the model would have taken that, with the query heads that share a key head
as heads of one row, so that keys are never repeated for them; the backward pass then finds the results of the forward
pass. A model's eager attention is called as it is, with whatever soft cap or sinks the model gives it, and is called
again in the backward pass, for it would keep all scores. The model's attention is replaced while a tree is computed
(`planted`) and put back afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from sweet.learn.flex import FlexTree
from sweet.learn.tree import Tree

Attention = Literal["blocks", "flex"]
"""How a tree is attended over."""

NAME = "sweet_tree"
"""What the replacement is called among the library's attention functions."""

LAYERS_RECOMPUTED = "_layers_recomputed"
"""The mark of a model whose layers are computed again in the backward pass (`sweet.learn.recompute`)."""

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


@dataclass(frozen=True)
class BlockTree:
    """A tree as its blocks. `regather`: keep nothing gathered for the backward pass (see `_gathered_again`)."""

    blocks: list[Block]
    regather: bool


_planted: ContextVar[tuple[str, BlockTree | FlexTree]] = ContextVar("planted")
"""The attention the model has of its own, and the tree that is being computed."""


@contextmanager
def planted(model: Any, tree: Tree, device: torch.device, attention: Attention = "blocks") -> Iterator[None]:
    """While it is open, `model` computes a row of ids as this tree.

    Raises:
        ValueError: the model's attention cannot be replaced.
    """
    _register()
    own = str(model.config.get_text_config()._attn_implementation)
    if own not in TAKEN:
        raise ValueError(f"attention {own} takes no mask")
    if attention == "flex":
        plan: BlockTree | FlexTree = FlexTree(tree, device)
    else:
        # Where whole layers are computed again in the backward pass, nothing of a block is kept anyway.
        plan = BlockTree(blocks_of(tree, device, BLOCK), regather=not hasattr(model, LAYERS_RECOMPUTED))
    with _replaced(model, own, plan):
        yield


def replanted(model: Any) -> AbstractContextManager[None]:
    """What `planted` has opened now, to be opened again when layers are computed again in the backward pass."""
    now = _planted.get(None)
    return nullcontext() if now is None else _replaced(model, *now)


@contextmanager
def _replaced(model: Any, own: str, plan: BlockTree | FlexTree) -> Iterator[None]:
    token = _planted.set((own, plan))
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
    own, plan = _planted.get()
    if torch.is_autocast_enabled(query.device.type):
        kind = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
    if isinstance(plan, FlexTree):
        return plan.attend(query, key, value, **more), None
    if own == "eager":
        attention = sys.modules[type(module).__module__].eager_attention_forward
        pieces = [_eager_block(partial(attention, module, **more), query, key, value, block) for block in plan.blocks]
    else:
        pieces = [_torch_block(query, key, value, block, plan.regather, **more) for block in plan.blocks]
    return torch.cat(pieces, dim=1), None


def _torch_block(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block: Block,
    regather: bool,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **_more: Any,
) -> Tensor:
    """A block by torch's attention: [1, slots, heads, size]."""
    if softcap is not None or position_bias is not None:
        raise ValueError("torch's attention takes neither a soft cap nor a bias")
    heads = key.shape[1]
    part = query[0, :, block.start : block.stop]
    part = part.reshape(heads, -1, *part.shape[1:])
    mask = block.mask(part.dtype)
    gathered = [whole.index_select(2, block.keys) for whole in (key, value)]
    keys, values = [each[0, :, None].expand(-1, part.shape[1], -1, -1) for each in gathered]
    with _gathered_again(gathered, (key, value), block.keys) if regather else nullcontext():
        result = scaled_dot_product_attention(part, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return result.flatten(0, 1).transpose(0, 1)[None]


def _gathered_again(gathered: Sequence[Tensor], wholes: Sequence[Tensor], keys: Tensor) -> saved_tensors_hooks:
    """While it is open, what is kept for the backward pass of `wholes.index_select(2, keys)` is how to get it again."""
    sources = {each.untyped_storage().data_ptr(): whole.detach() for each, whole in zip(gathered, wholes, strict=True)}

    def pack(kept: Tensor) -> Tensor | Callable[[], Tensor]:
        source = sources.get(kept.untyped_storage().data_ptr())
        if source is None:
            return kept
        shape, stride, offset = kept.shape, kept.stride(), kept.storage_offset()
        return lambda: source.index_select(2, keys).as_strided(shape, stride, offset)

    return saved_tensors_hooks(pack, lambda kept: kept if isinstance(kept, Tensor) else kept())


def _eager_block(attention: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, block: Block) -> Tensor:
    """A block by the model's own attention: [1, slots, heads, size]."""

    def attended(part: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        chosen = keys.index_select(2, block.keys), values.index_select(2, block.keys)
        result: Tensor = attention(part, *chosen, block.mask(part.dtype))[0]
        return result

    part = query[:, :, block.start : block.stop]
    if not torch.is_grad_enabled():
        return attended(part, key, value)
    again: Tensor = checkpoint(attended, part, key, value, use_reentrant=False, preserve_rng_state=False)
    return again


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *_args, **_more: None)
