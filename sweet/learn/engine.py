"""Trains a model step by step: AdamW, gradients, atomic checkpoints.

The loop is written for an `Engine` of one or several processes (ranks). Each rank computes its share of a step, and the
engine sums gradients and metrics over the ranks. The engine for several ranks is in `sweet.learn.zero`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from sweet.errors import UsageError
from sweet.files import replaced
from sweet.learn.batches import rank_groups
from sweet.learn.logprobs import Scorer, SpanScores, sequence_scores
from sweet.learn.lora import merged
from sweet.learn.sequences import TokenSequence

BETAS = (0.9, 0.95)
CLIP = 1.0
"""Maximum norm of a gradient."""

T = TypeVar("T")

PEAK_FLOPS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
}
"""Dense bf16 operations per second of GPUs, by a part of their CUDA device name (from the vendor's data sheets). The
first match counts, so longer names come first."""


def peak_flops(device: torch.device) -> float | None:
    """The peak operations per second of a known GPU; None for any other device, so that no utilisation is reported."""
    if device.type != "cuda":
        return None
    device_name = torch.cuda.get_device_name(device)
    return next((peak for name, peak in PEAK_FLOPS.items() if name in device_name), None)


class OtherModels(Protocol):
    """Further models of a training, whose state belongs to its checkpoint."""

    def state(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the state as this rank stores it. An engine of several ranks writes its part to `folder` instead."""

    def load_state(self, state: dict[str, Any], folder: Path | None = None) -> None:
        """Restore what `state` returned and wrote.

        Raises:
            ValueError: it is of another model.
        """


class Engine:
    """A model with its optimizer: here on one device, in one process.

    `sweet.learn.zero` has the engine of several ranks, which must call every method, including `backward`, together and
    in the same order.

    Attributes:
        scorer: runs forward passes; called by all ranks together too.
        rank, world: the number of this process, and how many there are.
        weight_decay: of matrices, from the next step on.

    Args:
        clip: the maximum gradient norm.
    """

    scorer: Scorer
    rank: int = 0
    world: int = 1
    weight_decay: float = 0.0

    def __init__(self, model: Any, clip: float) -> None:
        self.model, self.clip = model, clip
        self.scorer = Scorer(model)
        self.optimizer = self.new_optimizer()

    def new_optimizer(self) -> torch.optim.AdamW:
        matrices, vectors = list[Tensor](), list[Tensor]()
        for weight in trainable_weights(self.model).values():
            (matrices if len(getattr(weight, "ds_shape", weight.shape)) > 1 else vectors).append(weight)
        groups = [{"params": part, "decays": decays} for part, decays in ((matrices, True), (vectors, False)) if part]
        return torch.optim.AdamW(groups, lr=0.0, betas=BETAS, weight_decay=0.0, fused=True)

    def set_rates(self, optimizer: Any, lr: float) -> None:
        """Set the learning rate and the weight decay of the next step."""
        for group in optimizer.param_groups:
            group["lr"] = lr
            group["weight_decay"] = self.weight_decay if group["decays"] else 0.0

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """Add the gradients of a part of a step; they are summed over the ranks. `last` marks a step's last part."""
        torch.autograd.backward([loss])

    def step(self, lr: float) -> float | None:
        """Clip gradients, update the weights (on one device unless a gradient is not finite) and clear the gradients.
        Return the norm before clipping, which may not be finite; None where it is not known."""
        norm = float(torch.nn.utils.clip_grad_norm_(trainable_weights(self.model).values(), self.clip))
        if math.isfinite(norm):
            self.set_rates(self.optimizer, lr)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the ranks."""
        return list(values)

    def all_gather(self, value: T) -> list[T]:
        """The value of each rank, in order of ranks."""
        return [value]

    def weights(self) -> dict[str, Tensor] | None:
        """The trained weights by name, complete, on rank 0; None on the others."""
        return {name: parameter.detach() for name, parameter in trainable_weights(self.model).items()}

    @torch.no_grad()
    def merged_weights(self) -> dict[str, Tensor] | None:
        """All weights by the names of the model without an adapter, which is merged in (`sweet.learn.lora`), on rank 0;
        None on the others."""
        return dict(merged(self.model))

    def stored_weights(self) -> dict[str, Tensor]:
        """The trained weights by name, as this rank stores them: complete, or its part of each. After `release`, a
        forward pass computes with what their `data` are then."""
        return trainable_weights(self.model)

    def release(self) -> None:
        """Free what this rank has gathered of weights that are stored in parts."""

    # Checkpoints -----------------------------------------------------------------------------------------------

    def state(self, folder: Path | None = None) -> dict[str, Any]:
        """Return weights and optimizer, as `OtherModels.state`."""
        return {"model": self.weights(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any], folder: Path | None = None) -> None:
        """Restore what `state` returned and wrote."""
        copy_weights(trainable_weights(self.model), state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def save(self, path: Path, state: dict[str, Any], other_models: OtherModels | None = None) -> None:
        """Save everything needed to resume (trained weights, optimizer, random state), `state`, and the state of
        `other_models`, replacing what was saved at `path` before."""
        model_states = {} if other_models is None else {"models": other_models.state()}
        save_atomically({**self.state(), "random": torch.get_rng_state(), "state": {**state, **model_states}}, path)

    def load(self, path: Path, digest: str, other_models: OtherModels | None = None) -> dict[str, Any]:
        """Restore what `save` wrote and return its `state`.

        Raises:
            UsageError: the checkpoint belongs to another training, or cannot be read.
        """
        content = read_checkpoint(path, digest, lambda: torch.load(path, map_location="cpu", weights_only=True))
        state: dict[str, Any] = content["state"]
        self.load_state(content)
        torch.set_rng_state(content["random"])
        if other_models is not None:
            other_models.load_state(state.pop("models"))
        return state


def scores_in_shares(
    engine: Engine | None,
    scorer: Scorer,
    sequences: Sequence[TokenSequence],
    budget: int,
    select: Callable[[SpanScores], T],
    *,
    top: int = 0,
) -> list[T]:
    """What `select` takes of the scores of each sequence (`sequence_scores`), of which each rank computes a share, with
    as many forward passes as the others.

    Args:
        engine: of the ranks; None for one process.
    """
    if engine is None:
        return [select(scores) for scores in sequence_scores(scorer, sequences, budget, top=top)]
    groups = scorer.pack([[sequence] for sequence in sequences], budget)
    rank_values: dict[int, T] = {}
    for group, is_counted in rank_groups(groups, engine.rank, engine.world):
        group_scores = sequence_scores(scorer, [sequences[i] for i in group], budget, top=top)
        if is_counted:
            rank_values.update(zip(group, map(select, group_scores), strict=True))
    values = {index: value for part in engine.all_gather(rank_values) for index, value in part.items()}
    return [values[index] for index in range(len(sequences))]


def read_checkpoint(path: Path, digest: str, read: Callable[[], Any]) -> dict[str, Any]:
    """Return what `read` finds in a checkpoint.

    Raises:
        UsageError: it belongs to another training, or cannot be read.
    """
    fix = "train without --resume"
    try:
        content: dict[str, Any] = read()
        stored_digest = content["state"]["digest"]
    except Exception as error:  # torch.load does not document its exceptions
        raise UsageError(f"The checkpoint cannot be read: {error}", where=path, fix=fix) from error
    if stored_digest != digest:
        what = "The checkpoint belongs to a training with other settings or other data."
        raise UsageError(what, where=path, fix=fix)
    return content


def parameter_count(parameters: Iterable[Tensor]) -> int:
    """The number of parameters, including those that ZeRO-3 stores on other ranks."""
    return sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in parameters)


def trainable_weights(model: Any) -> dict[str, Tensor]:
    """The trainable parameters of a model, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def copy_weights(target: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Copy weights into tensors by name.

    Raises:
        ValueError: names or shapes differ.
    """
    for name in target.keys() | weights.keys():
        if name not in target or name not in weights or target[name].shape != weights[name].shape:
            raise ValueError(f"The weights belong to another model: {name}")
    with torch.no_grad():
        for name, tensor in target.items():
            tensor.copy_(weights[name])


def save_atomically(content: Any, path: Path) -> None:
    """Write tensors to a file that is either complete or unchanged."""
    with replaced(path, make_folders=True, durable=True, alone=True) as file:
        torch.save(content, file)
