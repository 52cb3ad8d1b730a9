"""Gradient checkpointing: the states inside a layer are not kept for the backward pass but computed again there.

What remains of a forward is one state a token and layer, and the inside of the one layer that is computed again; it
costs about one more forward. The backward pass comes when a tree is no longer planted (`sweet.learn.attention`), so
each layer plants its own tree again while it is repeated. Autocast's copies of a layer's weights are dropped with its
states: it would keep those of all layers until the last one is through, half the weights on each device, which ZeRO
could not divide. The switch of the library is not used: it acts on models in training mode alone, which would bring
dropout with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.learn.attention import LAYERS_RECOMPUTED, current_tree_attention

RECOMPUTE_THRESHOLD = 1_000_000_000
"""Parameters from which a GPU's memory is mostly too small for the states of a step's tokens."""


def recompute_layers(model: Any) -> None:
    """From now on compute the layers of `model` again in the backward pass.

    Raises:
        UsageError: the model has no layers that the library knows as such.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UsageError(
            f"The layers of {type(model).__name__} cannot be computed again.",
            where=option("gradient_checkpointing", "on"),
            fix=Hint(option("gradient_checkpointing", "off"), ", and a smaller ", option("micro_batch_tokens")),
        )
    setattr(model, LAYERS_RECOMPUTED, True)
    for layer in layers:
        _recompute(layer, model)


def _recompute(layer: Any, model: Any) -> None:
    compute = _no_autocast_cache()(layer.forward)

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return compute(*args, **kwargs)
        restore_attention = current_tree_attention(model)

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), restore_attention

        # ZeRO-3 keeps weights in parts, whose shapes change between the passes: no comparison of what is kept.
        return checkpoint(
            compute,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,
            determinism_check="none",
            context_fn=contexts,
            **kwargs,
        )

    layer.forward = forward


@contextmanager
def _no_autocast_cache() -> Iterator[None]:
    """Autocast keeps no copies of what it casts; those that a backward needs are its own."""
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)
