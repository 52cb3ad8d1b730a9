"""Attention over a prefix tree: block by block, or with one fused kernel (`sweet.learn.flex`).

Block by block: the slots of a block can only attend to the path of its first slot to the root and to the block itself,
because a slot before the block whose subtree reaches into the block contains the block's first slot too. So each block
attends to those keys alone, with the tree's rule (`sweet.learn.tree`) as its mask: time and memory grow with slots
times depth, while one mask over the whole tree would grow with slots times slots. Gradients flow through the shared
keys and values; the keys gathered for a block are gathered again in the backward pass instead of being stored.

Without gradients a CPU computes a tree segment by segment, each of a few blocks: the model's layers compute the slots
of the segment, and attention reads the stored keys and values of the slots before it. The numbers are the same; the
states of a segment stay in the caches, where those of a whole tree would be written to memory between two operations.
Most of these keys are seen by all slots of the segment, such as a prompt's by its replies. torch's attention reads them
for all slots together and without a mask, and the others in small blocks, of which it wastes less; both results are
merged by the log-sum-exp of their scores.

torch's attention is used if the model would use it, with the query heads that share a key head as heads of one row, so
that keys are never repeated; the backward pass then uses the saved results of the forward pass. A model's eager
attention is called as is, with the soft cap or sinks that the model passes, and is recomputed in the backward pass
because it would store all scores. The model's attention is replaced while a tree is computed (`tree_attention`) and
restored afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from sweet.learn.flex import FlexTree
from sweet.learn.tree import Tree

Attention = Literal["blocks", "flex"]
"""How attention over a tree is computed."""

NAME = "sweet_tree"
"""The name under which the replacement is registered with transformers."""

LAYERS_RECOMPUTED = "_layers_recomputed"
"""Attribute of a model whose layers are recomputed in the backward pass (`sweet.learn.recompute`)."""

SUPPORTED = ("sdpa", "eager")
"""Attention implementations that accept any mask."""

BLOCK = 256
"""Slots of a block. Half of the work on a block's own keys is wasted, while many small blocks cost kernel launches."""

SEGMENT_BLOCKS = 2
"""Blocks of a segment, whose states a CPU's caches hold: with more rows the products of the linear layers wait for the
memory, and take two to three times as long per row from 2,048 rows on."""

GPU_SEGMENT_BLOCKS = 16
"""The same on a GPU, whose memory holds the activations of a segment, and which larger segments use better."""

MERGED_BLOCK = 64
"""Slots of a block beside keys that the whole segment sees."""


def segment_size(block: int | None = None, *, on_gpu: bool) -> int:
    """Slots of a segment, if a block has `block`; BLOCK by default."""
    return (GPU_SEGMENT_BLOCKS if on_gpu else SEGMENT_BLOCKS) * (block or BLOCK)


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


@dataclass
class Segment:
    """Consecutive blocks, and the slots before them that all their slots see. These `common` slots are none of the
    blocks' keys."""

    blocks: list[Block]
    common: Tensor

    @property
    def slots(self) -> slice:
        return slice(self.blocks[0].start, self.blocks[-1].stop)

    @cached_property
    def whole_blocks(self) -> list[Block]:
        """The blocks with the slots in common among their keys."""
        if not len(self.common):
            return self.blocks
        return [
            Block(
                block.start,
                block.stop,
                torch.cat([self.common, block.keys]),
                torch.cat([block.visible.new_ones(len(block.visible), len(self.common)), block.visible], dim=1),
            )
            for block in self.blocks
        ]


def build_segment(ends: Tensor, slots: slice, block: int, *, merged: bool) -> Segment:
    """The segment of some slots of a tree, in blocks of `block`; only if `merged`, it has slots in common.

    Args:
        ends: those of `Tree`, [slots].
    """
    numbers = torch.arange(slots.stop, device=ends.device)
    is_common = ends[: slots.start] >= (slots.stop if merged else sys.maxsize)
    blocks = []
    for start in range(slots.start, slots.stop, block):
        own = numbers[start : start + block]
        sees = ends[:start] > start
        sees[: slots.start] &= ~is_common
        keys = torch.cat([sees.nonzero()[:, 0], own])
        visible = (keys[None] <= own[:, None]) & (own[:, None] < ends[keys][None])
        blocks.append(Block(start, start + len(own), keys, visible))
    return Segment(blocks, is_common.nonzero()[:, 0])


class BlockTree:
    """A tree as blocks, computed whole or segment by segment.

    Args:
        tree: the layout.
        device: where it is computed.
        block: slots of a block.
        regather: store no gathered keys for the backward pass (see `_regather_in_backward`).
        merges: whether the keys that all slots of a segment see may be read apart from the others (`_merged`).

    Attributes:
        segment: the current segment.
        stored: the keys and values of each layer up to the current segment, each [1, heads, slots, size], stored slot
            by slot, in which order they are gathered fastest. Empty if there is one segment.
    """

    segment: Segment

    def __init__(self, tree: Tree, device: torch.device, *, block: int, regather: bool, merges: bool) -> None:
        self.regather = regather
        self.ends = torch.tensor(tree.ends, device=device)
        self.stored: dict[Any, tuple[Tensor, Tensor]] = {}
        self._block, self._merges = block, merges

    def segments(self, size: int) -> Iterator[slice]:
        """The slots of each segment of at most `size` slots, one after the other, while attention is computed for these
        slots only."""
        count = len(self.ends)
        merged = self._merges and count > size
        for start in range(0, count, size):
            slots = slice(start, min(start + size, count))
            block = min(self._block, MERGED_BLOCK) if merged else self._block
            self.segment = build_segment(self.ends, slots, block, merged=merged)
            yield slots

    def extended(self, module: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer up to the current segment, given those of the segment."""
        if self.segment.slots == slice(0, len(self.ends)):
            return key, value
        if module not in self.stored:
            self.stored[module] = self._empty(key), self._empty(value)
        for stored, each in zip(self.stored[module], (key, value), strict=True):
            stored[:, :, self.segment.slots] = each
        return self.stored[module]

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_empty(1, len(self.ends), like.shape[1], like.shape[3]).transpose(1, 2)


class ReplayedSegment:
    """A segment that is computed again with a graph (`sweet.learn.segments`), in which the keys and values of the slots
    before it are leaves.

    Args:
        ends: those of the tree.
        stored: the keys and values of all slots, by layer.
        slots: those of the segment.

    Attributes:
        past: the slots before it that it sees: the path of its first slot.
        leaves: their keys and values, by layer.
        own: the keys and values of the segment, by layer.
    """

    regather = False

    def __init__(self, ends: Tensor, stored: dict[Any, tuple[Tensor, Tensor]], slots: slice) -> None:
        self.past = (ends[: slots.start] > slots.start).nonzero()[:, 0]
        self.leaves: dict[Any, tuple[Tensor, Tensor]] = {}
        self.own: dict[Any, tuple[Tensor, Tensor]] = {}
        self._stored = stored
        count = len(self.past)
        seen = torch.cat([ends[self.past], ends[slots]]).clamp(max=slots.stop) - slots.start + count
        self.segment = build_segment(seen, slice(count, len(seen)), BLOCK, merged=False)

    def extended(self, module: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of a layer on the path and in the segment, given those of the segment."""
        past_key, past_value = (_gather(each, self.past).detach().requires_grad_() for each in self._stored[module])
        self.leaves[module], self.own[module] = (past_key, past_value), (key, value)
        return torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)


Plan = BlockTree | ReplayedSegment | FlexTree
"""How attention is computed while it is replaced."""


def _gather(tensor: Tensor, keys: Tensor) -> Tensor:
    """Some slots of [1, heads, slots, size], whose memory is in the order of the slots."""
    return tensor.transpose(1, 2).index_select(1, keys).transpose(1, 2)


_active: ContextVar[tuple[str, Plan]] = ContextVar("tree_attention")
"""The model's own attention implementation, and the tree that is being computed."""


@contextmanager
def tree_attention(
    model: Any, tree: Tree, device: torch.device, attention: Attention = "blocks", block: int | None = None
) -> Iterator[BlockTree | FlexTree]:
    """While the context is open, `model` computes a row of ids as this tree, or segments of it (`BlockTree.segments`).

    Args:
        tree: the layout of the row.
        device: where it is computed.
        block: slots of a block; BLOCK by default.

    Raises:
        ValueError: the model's attention cannot be replaced.
    """
    if attention == "flex":
        plan: BlockTree | FlexTree = FlexTree(tree, device)
    else:
        # If whole layers are recomputed in the backward pass, nothing of a block is stored anyway.
        regather = not hasattr(model, LAYERS_RECOMPUTED)
        own = model.config.get_text_config()._attn_implementation
        merges = own == "sdpa" and device.type == "cpu" and not (torch.is_grad_enabled() or model.training)
        plan = BlockTree(tree, device, block=block or BLOCK, regather=regather, merges=merges)
    with attention_of(model, plan):
        yield plan


@contextmanager
def attention_of(model: Any, plan: Plan) -> Iterator[None]:
    """While the context is open, the model computes attention as `plan` says.

    Raises:
        ValueError: the model's attention cannot be replaced.
    """
    _register()
    original = str(model.config.get_text_config()._attn_implementation)
    if original not in SUPPORTED:
        raise ValueError(f"attention {original} does not accept a mask")
    with _replaced_attention(model, original, plan):
        yield


def current_tree_attention(model: Any) -> AbstractContextManager[None]:
    """The context of the `tree_attention` that is open now, to be entered again when layers are recomputed in
    backward."""
    active = _active.get(None)
    return nullcontext() if active is None else _replaced_attention(model, *active)


@contextmanager
def _replaced_attention(model: Any, original: str, plan: Plan) -> Iterator[None]:
    token = _active.set((original, plan))
    model.set_attn_implementation(NAME)
    try:
        if model.config.get_text_config()._attn_implementation != NAME:
            raise ValueError("the model's attention cannot be replaced")
        yield
    finally:
        model.set_attn_implementation(original)
        _active.reset(token)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention interface of transformers: heads of one row, [1, heads, slots, size], to [1, slots, heads, size]."""
    original, plan = _active.get()
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if isinstance(plan, FlexTree):
        return plan.attend(query, key, value, **kwargs), None
    key, value = plan.extended(module, key, value)
    if len(plan.segment.common) and key.shape[3] == value.shape[3]:  # the kernel requires it
        return _merged(query, key, value, plan.segment, **kwargs), None
    if original == "eager":
        attend = partial(sys.modules[type(module).__module__].eager_attention_forward, module, **kwargs)
        compute = partial(_eager_block, attend)
    else:
        compute = partial(_torch_block, regather=plan.regather, **kwargs)
    blocks = plan.segment.whole_blocks
    # Split, because the gradient of each slice would be as large as all queries.
    parts = torch.split(query, [block.stop - block.start for block in blocks], dim=2)
    outputs = [compute(part, key, value, block) for part, block in zip(parts, blocks, strict=True)]
    return torch.cat(outputs, dim=1), None


def _torch_block(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block: Block,
    *,
    regather: bool,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> Tensor:
    """One block with torch's attention: [1, slots, heads, size]."""
    _check(**kwargs)
    heads = key.shape[1]
    part = query[0].reshape(heads, -1, *query.shape[2:])
    mask = block.mask(part.dtype)
    sees_all = len(block.keys) == key.shape[2]
    selected = [key, value] if sees_all else [_gather(tensor, block.keys) for tensor in (key, value)]
    keys, values = [each[0, :, None].expand(-1, part.shape[1], -1, -1) for each in selected]
    regathers = regather and not sees_all
    with _regather_in_backward(selected, (key, value), block.keys) if regathers else nullcontext():
        result = scaled_dot_product_attention(part, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return result.flatten(0, 1).transpose(0, 1)[None]


def _check(*, softcap: float | None = None, position_bias: Tensor | None = None, **_kwargs: Any) -> None:
    """Refuse what torch's attention does not support."""
    if softcap is not None or position_bias is not None:
        raise ValueError("torch's attention supports neither a soft cap nor a bias")


def _merged(
    query: Tensor, key: Tensor, value: Tensor, segment: Segment, scaling: float | None = None, **kwargs: Any
) -> Tensor:
    """A segment with torch's attention, over the keys in common and over those of each block: [1, slots, heads, size].

    With Z = sum_k exp(s_k) over all scores and Z_c over those in common, attention is (Z_c / Z) o_c + (1 - Z_c / Z) o_b
    for the results o_c and o_b over both parts, and Z_c / Z = sigmoid(log Z_c - log Z_b).
    """
    _check(**kwargs)
    heads = key.shape[1]
    part = query[0].reshape(heads, -1, *query.shape[2:])

    def attend(rows: Tensor, keys: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        selected = [_gather(each, keys)[0, :, None].expand(-1, part.shape[1], -1, -1) for each in (key, value)]
        found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            rows, *selected, attn_mask=mask, scale=scaling
        )
        return found

    rows = torch.split(part, [block.stop - block.start for block in segment.blocks], dim=2)
    blocks = [
        attend(each, block.keys, block.mask(part.dtype)) for each, block in zip(rows, segment.blocks, strict=True)
    ]
    apart, sums = (torch.cat(results, dim=2) for results in zip(*blocks, strict=True))
    together, common = attend(part, segment.common)
    result = torch.lerp(together, apart, torch.sigmoid(sums - common)[..., None].to(part.dtype))
    return result.flatten(0, 1).transpose(0, 1)[None]


def _regather_in_backward(selected: Sequence[Tensor], sources: Sequence[Tensor], keys: Tensor) -> saved_tensors_hooks:
    """While open, `sources.index_select(2, keys)` is not saved for the backward pass but recomputed there."""
    by_storage = {
        part.untyped_storage().data_ptr(): source.detach() for part, source in zip(selected, sources, strict=True)
    }

    def pack(saved: Tensor) -> Tensor | Callable[[], Tensor]:
        source = by_storage.get(saved.untyped_storage().data_ptr())
        if source is None:
            return saved
        shape, stride, offset = saved.shape, saved.stride(), saved.storage_offset()
        return lambda: _gather(source, keys).as_strided(shape, stride, offset)

    return saved_tensors_hooks(pack, lambda saved: saved if isinstance(saved, Tensor) else saved())


def _eager_block(attention: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, block: Block) -> Tensor:
    """One block with the model's own attention: [1, slots, heads, size]."""

    def attend(part: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        selected = _gather(keys, block.keys), _gather(values, block.keys)
        result: Tensor = attention(part, *selected, block.mask(part.dtype))[0]
        return result

    if not torch.is_grad_enabled():
        return attend(query, key, value)
    output: Tensor = checkpoint(attend, query, key, value, use_reentrant=False, preserve_rng_state=False)
    return output


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *_args, **_kwargs: None)
