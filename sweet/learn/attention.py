"""Attention over a prefix tree: block by block, or with one fused kernel (`sweet.learn.flex`).

Block by block (`sweet.learn.blocks`), each block of slots attends to the keys that its slots see. Gradients flow
through the shared keys and values; the keys gathered for a block are gathered again in the backward pass instead of
being stored.

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
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from sweet.learn.blocks import Block, BlockTree, gather
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

Plan = BlockTree | FlexTree
"""How attention is computed while it is replaced."""

_active: ContextVar[tuple[str, Plan]] = ContextVar("tree_attention")
"""The model's own attention implementation, and the tree that is being computed."""


@contextmanager
def tree_attention(
    model: Any, tree: Tree, device: torch.device, attention: Attention = "blocks", block: int | None = None
) -> Iterator[Plan]:
    """While the context is open, `model` computes a row of ids as this tree, or segments of it (`BlockTree.segments`).

    Args:
        tree: the layout of the row.
        device: where it is computed.
        block: slots of a block; `blocks.BLOCK` by default.

    Raises:
        ValueError: the model's attention cannot be replaced.
    """
    if attention == "flex":
        plan: Plan = FlexTree(tree)
    else:
        # If whole layers are recomputed in the backward pass, nothing of a block is stored anyway.
        regather = not hasattr(model, LAYERS_RECOMPUTED)
        plan = BlockTree(tree, device, block=block, regather=regather)
    _register()
    original = str(model.config.get_text_config()._attn_implementation)
    if original not in SUPPORTED:
        raise ValueError(f"attention {original} does not accept a mask")
    with _replaced_attention(model, original, plan):
        yield plan


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
    if original == "eager":
        attend = partial(sys.modules[type(module).__module__].eager_attention_forward, module, **kwargs)
        compute = partial(_eager_block, attend)
    else:
        compute = partial(_torch_block, regather=plan.regather, **kwargs)
    # Split, because the gradient of each slice would be as large as all queries.
    parts = torch.split(query, [block.stop - block.start for block in plan.segment], dim=2)
    outputs = [compute(part, key, value, block) for part, block in zip(parts, plan.segment, strict=True)]
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
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **_kwargs: Any,
) -> Tensor:
    """One block with torch's attention: [1, slots, heads, size]."""
    if softcap is not None or position_bias is not None:
        raise ValueError("torch's attention supports neither a soft cap nor a bias")
    # [key heads, heads of one key head, slots, size]
    part = query[0].reshape(key.shape[1], -1, *query.shape[2:])
    mask = block.mask(part.dtype).to(part.device)
    sees_all = len(block.keys) == key.shape[2]
    selected = [key, value] if sees_all else [gather(tensor, block.keys) for tensor in (key, value)]
    keys, values = [source[0, :, None].expand(-1, part.shape[1], -1, -1) for source in selected]
    regathers = regather and not sees_all
    with _regather_in_backward(selected, (key, value), block.keys) if regathers else nullcontext():
        result = scaled_dot_product_attention(part, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
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
        return lambda: gather(source, keys).as_strided(shape, stride, offset)

    return saved_tensors_hooks(pack, lambda saved: saved if isinstance(saved, Tensor) else saved())


def _eager_block(attention: Callable[..., Any], query: Tensor, key: Tensor, value: Tensor, block: Block) -> Tensor:
    """One block with the model's own attention: [1, slots, heads, size]."""

    def attend(part: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        selected = gather(keys, block.keys), gather(values, block.keys)
        result: Tensor = attention(part, *selected, block.mask(part.dtype).to(part.device))[0]
        return result

    if not torch.is_grad_enabled():
        return attend(query, key, value)
    output: Tensor = checkpoint(attend, query, key, value, use_reentrant=False, preserve_rng_state=False)
    return output


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *_args, **_kwargs: None)
