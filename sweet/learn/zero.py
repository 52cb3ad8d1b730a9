"""The engine of several ranks: DeepSpeed's ZeRO.

What is kept in parts: the optimizer's moments (stage 1), the gradients too (2), the weights too (3); stage 0 keeps all
on every rank. Weights, gradients and moments are fp32 as they are with one device, and a GPU computes in bf16 through
the scorer's autocast, so one rank or many, any stage, makes the same updates up to the order of sums. AdamW is torch's,
on GPUs and for what is offloaded to the host: DeepSpeed's own would have to be compiled first.

DeepSpeed sees one module whose forward is the whole of a scorer's: where weights are fetched before they are used and
let go afterwards, its hooks must see the output layer inside the same forward.

Under stage 3 no process but the first ever holds the whole model: it is loaded in parts (`loading`), and the first
reads the stored weights and deals them out, layer by layer.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from sweet.errors import UsageError
from sweet.files import write_whole
from sweet.hints import Hint, option
from sweet.learn.engine import BETAS, trainable_weights
from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.tokens import TokenSequence

Offload = Literal["none", "optimizer", "all"]

T = TypeVar("T")

CHECKPOINT_FILE = "settled.json"
"""Beside the folders of checkpoints: which one counts. Replaced when a checkpoint is whole."""


@dataclass(frozen=True)
class ZeroSettings:
    """The stage, and what is kept in the host's memory: the optimizer (from stage 1), the weights too (stage 3)."""

    stage: int
    offload: Offload = "none"


def init_ranks(device: Literal["cpu", "cuda"]) -> torch.device:
    """Meet the other ranks that the launcher has started; the device of this one."""
    os.environ["DS_ACCELERATOR"] = device  # DeepSpeed would take a GPU that is there
    import deepspeed
    from deepspeed.runtime import compiler

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # Its Muon optimizer, which is not used here, is compiled when it is imported: that loads torch's compiler, which
    # takes each rank two seconds.
    compiler.compile = lambda: lambda function: function
    if device == "cpu":
        # Its shared-memory exchange would be compiled first, for minutes, and a stopped compiler leaves locks.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        place = torch.device("cpu")
    else:
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    deepspeed.init_distributed(dist_backend="gloo" if device == "cpu" else "nccl", auto_mpi_discovery=False)
    return place


@contextmanager
def partitioned_loading(settings: ZeroSettings, clip: float) -> Iterator[None]:
    """While it is open, models are loaded as `settings` will keep them. The ranks load together."""
    if settings.stage < 3:
        yield
        return
    from transformers.integrations import deepspeed as integration

    library: Any = integration
    config = library.HfDeepSpeedConfig(deepspeed_config(settings, clip, torch.distributed.get_world_size()))
    try:
        yield
    finally:
        del config  # the library knows it as long as it lives
        library.unset_hf_deepspeed_config()


class _Forward(torch.nn.Module):
    """A scorer as a module."""

    scorer: _DeepSpeedScorer

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, sequences: Sequence[TokenSequence]) -> tuple[Tensor, ...]:
        scores = self.scorer.compute(sequences)
        return tuple(tensor for tensor in (scores.sums, scores.counts, scores.values) if tensor is not None)


class _DeepSpeedScorer(Scorer):
    """A scorer whose forwards go through DeepSpeed."""

    deepspeed_engine: Any = None

    def compute(self, sequences: Sequence[TokenSequence]) -> SpanScores:
        return super().__call__(sequences)

    def __call__(self, sequences: Sequence[TokenSequence]) -> SpanScores:
        # Weights that are fetched in inference mode could not be changed afterwards. Leaving it enables gradients.
        grad_enabled = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(grad_enabled):
            return SpanScores(*self.deepspeed_engine(sequences))


class ZeroEngine:
    """Implements `sweet.learn.engine.Engine` on all ranks.

    Args:
        model: with fp32 weights, on the CPU and on every rank the same, or as `loading` had it loaded.
        clip: the norm that gradients are clipped to.
        device: what `join` gave.
    """

    def __init__(self, model: Any, clip: float, settings: ZeroSettings, device: torch.device) -> None:
        import deepspeed

        self.model, self.clip, self.settings = model, clip, settings
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self._zero = deepspeed.zero
        config = deepspeed_config(settings, clip, self.world)
        if settings.stage == 3:
            # Weight by weight, so that the whole model need never be on the device.
            self._zero.Init(module=model, config_dict_or_path=config, dtype=torch.float32)
            for buffer in model.buffers():
                buffer.data = buffer.data.to(device)
        self._frozen = not all(parameter.requires_grad for parameter in model.parameters())
        forward = _Forward(model)
        optimizer = torch.optim.AdamW(
            trainable_weights(model).values(), lr=0.0, betas=BETAS, weight_decay=0.0, fused=True
        )
        self._engine, self._optimizer, *_ = deepspeed.initialize(
            model=forward,
            optimizer=optimizer,
            config=config,
            dist_init_required=False,
        )
        self._engine.eval()
        # FlexAttention tries its gradients outside of DeepSpeed's backward pass, which ZeRO-3 knows nothing of.
        forward.scorer = _DeepSpeedScorer(model, device=device, attention="blocks")
        forward.scorer.deepspeed_engine = self._engine
        self.scorer: Scorer = forward.scorer

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        self._engine.set_gradient_accumulation_boundary(last)
        # DeepSpeed averages over the ranks, and the gradients of a step are a sum.
        self._engine.backward(loss * self.world, scale_wrt_gas=False)
        if not last:
            self._engine.step()

    def step(self, lr: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        if self.settings.stage > 0:
            self._engine.step()
            return float(self._engine.get_global_grad_norm())
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip))
        self._engine.step()
        return norm

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64, device=self.scorer.device)
        torch.distributed.all_reduce(sums)
        result: list[float] = sums.tolist()
        return result

    def all_gather(self, value: T) -> list[T]:
        result: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(result, value)
        return result

    def weights(self) -> dict[str, Tensor] | None:
        """All trained weights by name, whole, fp32, on the host of rank 0; None on the others."""
        content = {}
        for name, parameter in trainable_weights(self.model).items():
            with self._zero.GatheredParameters([parameter], enabled=self.settings.stage == 3):
                if self.rank == 0:
                    content[name] = parameter.detach().to("cpu", copy=True)
        return content if self.rank == 0 else None

    # Checkpoints -----------------------------------------------------------------------------------------------

    def save(self, path: Path, state: dict[str, Any]) -> None:
        """Each rank writes its part into a new folder beside `path`, which then names that folder."""
        tag = f"step-{state['step']}"
        self._engine.save_checkpoint(
            str(path.parent), tag=tag, save_latest=False, exclude_frozen_parameters=self._frozen
        )
        torch.distributed.barrier()
        if self.rank == 0:
            metadata = {"tag": tag, "world": self.world, "stage": self.settings.stage, "state": state}
            write_whole(path, json.dumps(metadata).encode())
            for folder in path.parent.glob("step-*"):
                if folder.name != tag:
                    shutil.rmtree(folder)
        torch.distributed.barrier()

    def load(self, path: Path, digest: str) -> dict[str, Any]:
        fix = Hint("train without ", option("resume", True))
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))
            state: dict[str, Any] = metadata["state"]
            layout = (metadata["world"], metadata["stage"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"The checkpoint cannot be read: {error}", where=path, fix=fix) from error
        if state["digest"] != digest:
            what = "The checkpoint belongs to a training with other settings or other data."
            raise UsageError(what, where=path, fix=fix)
        if layout != (self.world, self.settings.stage):
            raise UsageError(
                f"The checkpoint was made by {layout[0]} ranks with ZeRO {layout[1]}, and these are {self.world} with "
                f"ZeRO {self.settings.stage}: its parts are cut otherwise.",
                where=path,
                fix=Hint(option("devices"), " and ", option("zero", layout[1]), " as before, or ", fix),
            )
        result, _ = self._engine.load_checkpoint(
            str(path.parent), tag=metadata["tag"], load_module_strict=not self._frozen
        )
        if result is None:
            raise UsageError("The checkpoint is not whole.", where=path.parent / metadata["tag"], fix=fix)
        return state


def deepspeed_config(settings: ZeroSettings, clip: float, world: int) -> dict[str, Any]:
    """What DeepSpeed is told. The size of a batch is of no meaning to it: the loop decides when a step ends."""
    zero: dict[str, Any] = {"stage": settings.stage}
    if settings.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if settings.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {
        "train_batch_size": world,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # Without ZeRO DeepSpeed clips and keeps the norm to itself.
        "gradient_clipping": clip if settings.stage > 0 else 0.0,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }
