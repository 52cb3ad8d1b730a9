"""Gradient checkpointing: the states inside a layer are not stored for the backward pass but recomputed there.

One state per token and layer is stored, and the inside of the one layer that is being recomputed; this costs about one
more forward pass. The backward pass runs when the context of a tree (`sweet.learn.attention`) has been closed, so each
layer enters it again while it is recomputed. Autocast's copies of a layer's weights are freed with its states:
otherwise those of all layers would be kept until the last one is done, half the size of the weights on each device,
which ZeRO could not divide. The library's own switch is not used, because it works in training mode only, which would
enable dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from sweet.errors import UsageError
from sweet.learn.attention import LAYERS_RECOMPUTED, current_tree_attention

RECOMPUTE_THRESHOLD = 1_000_000_000
"""Number of parameters from which a GPU's memory is usually too small for the activations of a step."""


def recompute_layers(model: Any) -> None:
    """Recompute the layers of `model` in the backward pass from now on.

    Raises:
        UsageError: the library does not support this for the model's layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UsageError(
            f"The layers of {type(model).__name__} cannot be recomputed.",
            where="--gradient-checkpointing on",
            fix="--gradient-checkpointing off, and a smaller --micro-batch-tokens",
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
        # ZeRO-3 changes the shapes of weights between the passes, so saved tensors must not be compared.
        return checkpoint(
            compute,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,
            determinism_check="none",
            context_fn=lambda: (nullcontext(), restore_attention),
            **kwargs,
        )

    layer.forward = forward


@contextmanager
def _no_autocast_cache() -> Iterator[None]:
    """Switch off autocast's cache of cast weights; copies that the backward pass needs are saved there anyway."""
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)
