"""The backward pass of a tree, segment by segment, so that the activations of one segment are in memory at a time.

The forward pass computes the states without a graph, and keeps the keys and values of each layer. The backward pass
takes the segments from the last to the first. It computes a segment again with a graph, in which the keys and values of
the path before it are leaves, and goes through this graph from the gradients of the segment's states, and of its keys
and values. The gradients of the leaves are added to those of the path's keys and values. In depth-first order all slots
that see a key follow it, so that its gradient is complete when its segment's turn comes: the gradients are those of the
whole tree.

Both passes take another forward pass together, as gradient checkpointing does. What grows with the tree are its states,
and for each layer its keys and values with their gradients. The idea, to keep the activations of one path of the tree
alone, is that of AReaL-DTA (arXiv 2602.00482).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sweet.learn.attention import attention_of, tree_attention
from sweet.learn.blocks import BlockTree, ReplayedSegment
from sweet.learn.tree import Tree


def segmented_states(
    model: Any, tree: Tree, device: torch.device, states: Callable[[slice], Tensor], size: int
) -> Tensor:
    """The states of a tree, [1, slots, width], with the gradients of the weights that `states` uses.

    They are added to the weights' `grad` in the backward pass: `torch.autograd.grad` does not return them.

    Args:
        states: computes some slots with the model, [1, slots, width]. It is called with a replaced attention.
        size: slots of a segment.
    """
    anchor = torch.empty(0, requires_grad=True)  # autograd calls functions with an input that needs gradients
    result: Tensor = _States.apply(anchor, _Segments(model, tree, device, states, size))  # type: ignore[no-untyped-call]
    return result


class _States(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _anchor: Tensor, segments: _Segments) -> Tensor:
        ctx.segments = segments
        states, keys = segments.forward()
        ctx.save_for_backward(*keys)
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        ctx.segments.backward(gradient, ctx.saved_tensors)
        return None, None


class _Segments:
    """One tree, from its forward pass to its backward pass."""

    def __init__(
        self, model: Any, tree: Tree, device: torch.device, states: Callable[[slice], Tensor], size: int
    ) -> None:
        self.model, self.tree, self.device, self.states, self.size = model, tree, device, states, size
        self.slots: list[slice] = []
        self.layers: list[Any] = []

    def forward(self) -> tuple[Tensor, list[Tensor]]:
        """Return the states, and the keys and values of each layer."""
        parts = []
        with tree_attention(self.model, self.tree, self.device) as plan:
            assert isinstance(plan, BlockTree)
            for at in plan.segments(self.size):
                self.slots.append(at)
                parts.append(self.states(at))
        self.layers = list(plan.stored)
        return torch.cat(parts, dim=1), [each for pair in plan.stored.values() for each in pair]

    def backward(self, gradient: Tensor, keys: Sequence[Tensor]) -> None:
        """Add the gradients of the weights to their `grad`.

        Args:
            gradient: that of the states.
            keys: what `forward` returned.
        """
        stored = dict(zip(self.layers, zip(keys[::2], keys[1::2], strict=True), strict=True))
        sums = {layer: [torch.zeros_like(each, dtype=torch.float32) for each in pair] for layer, pair in stored.items()}
        ends = torch.tensor(self.tree.ends, device=self.device)
        for at in reversed(self.slots):
            replay = ReplayedSegment(ends, stored, at)
            with torch.enable_grad(), attention_of(self.model, replay):
                outputs, incoming = [self.states(at)], [gradient[:, at]]
            for layer, own in replay.own.items():
                for each, total in zip(own, sums[layer], strict=True):
                    if each.requires_grad:  # not below an adapter
                        outputs.append(each)
                        incoming.append(total[:, :, at].to(each.dtype))
            torch.autograd.backward(outputs, incoming)
            for layer, leaves in replay.leaves.items():
                for leaf, total in zip(leaves, sums[layer], strict=True):
                    if leaf.grad is not None:
                        total.index_add_(2, replay.past, leaf.grad.float())
