"""Estimates the memory of a training from shapes alone.

There are two parts. What is stored for each parameter (weights, gradients, AdamW's two moments) is known exactly; ZeRO
divides it. What a forward pass saves for its backward pass grows with the tokens of a micro-batch and is counted
operation by operation. All sizes are bytes on one device (one rank) unless a name says otherwise.

Not counted: the program and its libraries (a CUDA context: about 0.5 GB), and fragmentation of the allocator. Compared
with the peak of tensors measured on a CPU, the estimate is right within a factor of 1.3, in fp32 and in bf16
(tests/learn/test_estimate.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sweet.learn.logprobs import CHUNK_NUMBERS

FLOAT, HALF = 4, 2

FEED_FORWARD = ("moe_intermediate_size", "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
"""Names of the width of the feed-forward layer in configurations. Without one it is four times the hidden width."""

LIVE_PARAMETERS, BUCKET = 1_000_000_000, 500_000_000
"""Defaults of DeepSpeed, in numbers: weights fetched from other ranks at a time, and gradients sent at a time."""


@dataclass(frozen=True)
class ZeroSettings:
    """The stage, and what is stored in the host's memory: the optimizer (from stage 1), also the weights (stage 3)."""

    stage: int
    offload: Literal["none", "optimizer", "all"] = "none"


@dataclass(frozen=True)
class Shape:
    """The shape parameters that determine the size of activations.

    Attributes:
        hidden, layers: width of the residual stream, and number of layers.
        queries, keys: total width of all query heads, and of all key heads.
        inner: width of the feed-forward layer, over all experts of a token.
        vocabulary: number of tokens.
        inner_products: numbers that the feed-forward layer saves for each unit of `inner`; 4 if it is gated.
    """

    hidden: int
    layers: int
    queries: int
    keys: int
    inner: int
    vocabulary: int
    inner_products: int = 4

    @classmethod
    def of(cls, config: Any) -> Shape:
        """The shape in a model's configuration."""
        config = config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", None) or 1)  # Mamba has none
        width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        experts = int(getattr(config, "num_experts_per_tok", None) or 1)
        inner = next((size for name in FEED_FORWARD if (size := getattr(config, name, None))), 4 * config.hidden_size)
        inner = experts * int(max(inner) if isinstance(inner, list | tuple) else inner)
        return cls(
            hidden=int(config.hidden_size),
            layers=int(config.num_hidden_layers),
            queries=heads * width,
            keys=int(getattr(config, "num_key_value_heads", None) or heads) * width,
            inner=inner,
            vocabulary=int(config.vocab_size),
        )

    @classmethod
    def of_vision_tower(cls, config: Any) -> Shape:
        """The shape of the vision tower of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL."""
        vision = config.vision_config
        # In Qwen2-VL, `hidden_size` is that of the language model.
        width = int(getattr(vision, "embed_dim", None) or vision.hidden_size)
        inner = int(getattr(vision, "intermediate_size", None) or width * vision.mlp_ratio)
        products = {"silu": 4, "quick_gelu": 3}.get(vision.hidden_act, 2)
        return cls(width, int(vision.depth), width, width, inner, vocabulary=0, inner_products=products)


@dataclass(frozen=True)
class States:
    """Bytes stored for the parameters: on a device, and for offloaded parts in the host's memory."""

    weights: float
    gradients: float
    optimizer: float
    host: float = 0.0


def model_states(parameters: int, trainable: int, zero: ZeroSettings | None = None, devices: int = 1) -> States:
    """Weights, gradients and optimizer states of one device.

    With P parameters in fp32, T of them trainable: 4 P, 4 T and, for AdamW's moments, 8 T. ZeRO (arXiv 1910.02054,
    section 5) divides over N devices: stage 1 the optimizer, stage 2 also the gradients, stage 3 also the weights. The
    paper's mixed precision keeps an fp32 copy of fp16 weights in the optimizer; here the weights are fp32 themselves,
    and DeepSpeed's stages 1 and 2 keep a copy of the part that they update (4 T / N).

    Args:
        parameters, trainable: P and T.
        zero: None for the engine of one device.
        devices: N.
    """
    weights, gradients, moments = float(FLOAT * parameters), float(FLOAT * trainable), float(2 * FLOAT * trainable)
    if zero is None or zero.stage == 0:
        return States(weights, gradients, moments)
    copy = FLOAT * trainable if zero.stage < 3 else 0
    optimizer = (moments + copy) / devices
    if zero.stage >= 2:
        gradients = gradients / devices
    if zero.stage == 3:
        weights = weights / devices
    host = 0.0
    if zero.offload != "none":
        # Weights that are updated on the host are stored there.
        host, optimizer = optimizer + (FLOAT * trainable / devices if zero.stage == 3 else 0), 0.0
    if zero.offload == "all":
        weights = 0.0
    return States(weights, gradients, optimizer, host)


def forward_memory(
    shape: Shape, positions: int, supervised: int, *, mixed: bool, longest: int = 0, checkpointing: bool = False
) -> dict[str, float]:
    """Bytes that a forward pass saves for its backward pass, including working memory, by category.

    With gradient checkpointing the logits are freed before a layer is recomputed, so only what they take beyond that
    layer is counted.

    Args:
        positions: tokens computed in one forward pass, padding included.
        supervised: tokens whose logits are computed.
        mixed: bf16 autocast.
        longest: length of the longest sequence of a prefix tree; 0 for separate sequences.
        checkpointing: gradient checkpointing.
    """
    sizes = {
        "activations": activations(shape, positions, mixed=mixed, checkpointing=checkpointing),
        "masks": masks(positions, longest, mixed=mixed),
        "logits": logits(shape, supervised),
    }
    if checkpointing:
        recomputed = 1.5 * positions * _layer_bytes(shape, mixed=mixed)
        sizes["logits"] = max(0.0, sizes["logits"] - recomputed)
    return sizes


def activations(shape: Shape, positions: int, *, mixed: bool, checkpointing: bool = False) -> float:
    """Bytes that a forward pass over `positions` saves for its backward pass, and the working memory of one layer's
    backward.

    The counting follows arXiv 2205.05198, section 4.1, for the layers of current models (RMSNorm, rotary positions,
    grouped keys, a gated feed-forward layer, no dropout, attention that stores no score matrix). Saved per position and
    layer, with e bytes per computed number (4, under bf16 autocast 2) and 4 bytes in the residual stream:

        two norms      2 h (4 + 4 + e)     input, normalised, output as the next product reads it
        attention      e (2 q + 2 k + q)   queries and keys after the rotation, values, result
        feed-forward   4 e f               gate, its activation, up, their product (`Shape.inner_products`)

    With gradient checkpointing a layer saves its input, 4 h, and one layer at a time saves the rest. A layer's backward
    pass holds gradients of about the size of what the layer saved.
    """
    layer = _layer_bytes(shape, mixed=mixed)
    per_position = shape.layers * FLOAT * shape.hidden + layer if checkpointing else shape.layers * layer
    outer_layers = 4 * FLOAT * shape.hidden  # embeddings, the last norm, and its gradient
    return float(positions * (per_position + layer / 2 + outer_layers))


def _layer_bytes(shape: Shape, *, mixed: bool) -> int:
    """Bytes that a layer saves for one position."""
    e = HALF if mixed else FLOAT
    norms = 2 * shape.hidden * (2 * FLOAT + e)
    attention = e * (3 * shape.queries + 2 * shape.keys)
    return norms + attention + shape.inner_products * e * shape.inner


def image_activations(config: Any, tokens: int, *, mixed: bool, checkpointing: bool = False) -> float:
    """Bytes that the vision tower saves for its backward pass, as `activations` of its patches.

    Args:
        config: of a vision-language model.
        tokens: of all images in a forward pass; a token is `spatial_merge_size` x `spatial_merge_size` patches.
    """
    patches = tokens * int(config.vision_config.spatial_merge_size) ** 2
    return activations(Shape.of_vision_tower(config), patches, mixed=mixed, checkpointing=checkpointing)


def masks(positions: int, longest: int, *, mixed: bool) -> float:
    """Bytes of the masks of a prefix tree (`sweet.learn.attention`): each position against its path, as booleans and as
    numbers."""
    return float(positions * longest * (1 + (HALF if mixed else FLOAT)))


def logits(shape: Shape, supervised: int) -> float:
    """Bytes of the logits at supervised tokens, one chunk at a time: raw, scaled, their softmax and their gradient, in
    fp32."""
    return 4.0 * FLOAT * min(supervised * shape.vocabulary, max(CHUNK_NUMBERS, shape.vocabulary))


def casts(shape: Shape, parameters: int, *, mixed: bool, checkpointing: bool = False) -> float:
    """Bytes of the bf16 copies of the weights that autocast makes and the backward pass needs. No stage of ZeRO divides
    them.

    With gradient checkpointing (`sweet.learn.recompute`) they are those of one layer and of the output layer.
    """
    if checkpointing:
        parameters = round(parameters / shape.layers) + shape.vocabulary * shape.hidden
    return float(HALF * parameters) if mixed else 0.0


def buffers(shape: Shape, parameters: int, zero: ZeroSettings | None) -> float:
    """Bytes of DeepSpeed's communication buffers at its defaults: a bucket of gradients (`reduce_bucket_size`), and
    under stage 3 the fetched weights (`stage3_max_live_parameters`, or those of the largest layer alone)."""
    if zero is None or zero.stage == 0:
        return 0.0
    fetched = min(parameters, max(LIVE_PARAMETERS, shape.vocabulary * shape.hidden)) if zero.stage == 3 else 0
    return float(FLOAT * (BUCKET + fetched))
