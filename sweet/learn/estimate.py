"""How much memory a training will take, from the shapes alone.

Two things take it. What is kept for each parameter (weights, gradients, AdamW's two moments) is known exactly; ZeRO
divides it. What a forward leaves for its backward goes with the tokens of a micro-batch and is counted operation by
operation. All sizes are bytes, of one device (one rank), unless a name says otherwise.

Not counted: the program itself and its libraries (a CUDA context: some 0.5 GB), and what an allocator cannot hand out
for being in pieces. Against the peak of tensors measured on a CPU the estimate
is right within a factor of `FACTOR`, in fp32 and in bf16 (tests/learn/test_estimate.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweet.learn.logprobs import CHUNK_NUMBERS
from sweet.learn.zero import ZeroSettings

TOLERANCE = 1.3
"""How far the measured peak may lie from the estimate, either way."""

RECOMPUTE_TOLERANCE = 1.5
"""How far below it where layers are computed again: at the sizes of tests the layer that is so is most of it."""

FLOAT, HALF = 4, 2

LIVE_PARAMETERS, BUCKET = 1_000_000_000, 500_000_000
"""Numbers: weights that are fetched from other ranks at a time, and gradients that are sent at a time."""


@dataclass(frozen=True)
class Shape:
    """What the size of activations depends on.

    Attributes:
        hidden, layers: width of the residual stream, and how many layers there are.
        queries, keys: width of all query heads, and of all key heads.
        inner: width of the gated feed-forward layer, over all experts that a token takes.
    """

    hidden: int
    layers: int
    queries: int
    keys: int
    inner: int
    vocabulary: int

    @classmethod
    def of(cls, config: Any) -> Shape:
        """From a model's configuration."""
        config = config.get_text_config()
        heads = int(config.num_attention_heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        experts = int(getattr(config, "num_experts_per_tok", None) or 1)
        inner = int(getattr(config, "moe_intermediate_size", None) or config.intermediate_size) * experts
        return cls(
            hidden=int(config.hidden_size),
            layers=int(config.num_hidden_layers),
            queries=heads * width,
            keys=int(getattr(config, "num_key_value_heads", None) or heads) * width,
            inner=inner,
            vocabulary=int(config.vocab_size),
        )


@dataclass(frozen=True)
class States:
    """What is kept for the parameters: on a device, and of what is offloaded in the host's memory."""

    weights: float
    gradients: float
    optimizer: float
    host: float = 0.0


def model_states(parameters: int, trainable: int, zero: ZeroSettings | None = None, devices: int = 1) -> States:
    """Weights, gradients and optimizer states of one device.

    With fp32 weights P, trainable T: 4 P, 4 T and, for AdamW's moments, 8 T. ZeRO (arXiv 1910.02054, section 5) divides
    over N devices: stage 1 the optimizer, 2 the gradients too, 3 the weights too. The paper's mixed precision keeps an
    fp32 copy of fp16 weights in the optimizer; here weights are fp32 themselves, and DeepSpeed's stages 1 and 2 keep a
    copy of the part that they update (4 T / N).

    Args:
        zero: None for the engine of one device.
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
        # What is updated on the host has its weights there.
        host, optimizer = optimizer + (FLOAT * trainable / devices if zero.stage == 3 else 0), 0.0
    if zero.offload == "all":
        weights = 0.0
    return States(weights, gradients, optimizer, host)


def forward_memory(
    shape: Shape, positions: int, supervised: int, *, mixed: bool, longest: int = 0, checkpointing: bool = False
) -> dict[str, float]:
    """What a forward keeps for its backward, with the working memory of either, by what takes it.

    With gradient checkpointing the logits are gone before a layer is computed again: of them counts what they take
    more than that.

    Args:
        supervised: tokens whose logits are formed.
        longest: sequence of a prefix tree; 0 where the sequences stand by themselves.
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
    """What a forward over so many positions keeps for its backward, and the working memory of a layer's backward.

    The counting is that of arXiv 2205.05198, section 4.1, done for the layers of today's models (RMSNorm, rotary
    positions, grouped keys, a gated feed-forward, no dropout, attention that keeps no matrix of scores). Kept per
    position and layer, with e bytes a computed number (4, under bf16 autocast 2) and 4 bytes in the residual stream:

        two norms      2 h (4 + 4 + e)     input, normalised, output as the next product reads it
        attention      e (2 q + 2 k + q)   queries and keys after the rotation, values, result
        feed-forward   4 e f               gate, its activation, up, their product

    With gradient checkpointing a layer keeps its input, 4 h, and one layer at a time keeps the rest. A layer's
    backward holds the gradients of about what the layer kept.
    """
    layer = _layer_bytes(shape, mixed=mixed)
    per_position = shape.layers * FLOAT * shape.hidden + layer if checkpointing else shape.layers * layer
    outer_layers = 4 * FLOAT * shape.hidden  # embeddings, the last norm, and the gradient that goes back from there
    return float(positions * (per_position + layer / 2 + outer_layers))


def _layer_bytes(shape: Shape, *, mixed: bool) -> int:
    """What a layer keeps for one position."""
    e = HALF if mixed else FLOAT
    norms = 2 * shape.hidden * (2 * FLOAT + e)
    attention = e * (3 * shape.queries + 2 * shape.keys)
    return norms + attention + 4 * e * shape.inner


def masks(positions: int, longest: int, *, mixed: bool) -> float:
    """The masks of a prefix tree (`sweet.learn.attention`): each position against its path, as truth and as numbers."""
    return float(positions * longest * (1 + (HALF if mixed else FLOAT)))


def logits(shape: Shape, supervised: int) -> float:
    """Logits at supervised tokens, a chunk at a time: as they come, scaled, their softmax and their gradient, fp32."""
    return 4.0 * FLOAT * min(supervised * shape.vocabulary, max(CHUNK_NUMBERS, shape.vocabulary))


def casts(shape: Shape, parameters: int, *, mixed: bool, checkpointing: bool = False) -> float:
    """The bf16 copies of the weights that autocast makes and a backward needs. No stage of ZeRO divides them.

    With gradient checkpointing (`sweet.learn.recompute`) they are those of one layer and of the output layer.
    """
    if checkpointing:
        parameters = round(parameters / shape.layers) + shape.vocabulary * shape.hidden
    return float(HALF * parameters) if mixed else 0.0


def buffers(shape: Shape, parameters: int, zero: ZeroSettings | None) -> float:
    """What DeepSpeed exchanges with the other ranks through, at its defaults, which nobody here changes: a bucket of
    gradients (`reduce_bucket_size`), and under stage 3 the weights that are fetched (`stage3_max_live_parameters`, or
    those of the largest layer alone)."""
    if zero is None or zero.stage == 0:
        return 0.0
    fetched = min(parameters, max(LIVE_PARAMETERS, shape.vocabulary * shape.hidden)) if zero.stage == 3 else 0
    return float(FLOAT * (BUCKET + fetched))
