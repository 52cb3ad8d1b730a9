"""The engine for several ranks: DeepSpeed's ZeRO.

Partitioned are the optimizer's moments (stage 1), also the gradients (2), also the weights (3); stage 0 replicates
everything. Weights, gradients and moments are fp32 as on one device, and a GPU computes in bf16 through the scorer's
autocast, so any number of ranks and any stage make the same updates up to the order of sums. AdamW is torch's, on GPUs
and for what is offloaded to the host: DeepSpeed's own would have to be compiled first.

DeepSpeed sees one module whose forward is the scorer's whole computation: if weights are fetched before use and
released afterwards, its hooks must see the output layer inside the same forward pass.

Under stage 3 no process but the first ever has the whole model: it is loaded partitioned (`partitioned_loading`), and
the first process reads the stored weights and distributes them layer by layer.

In each forward and backward pass all ranks must use the same weights in the same order: stage 3 fetches them together,
and the lower stages add up gradients in the order in which the backward pass computes them. Therefore the vision tower
of a vision-language model runs in every pass, also for sequences without images (`Scorer.require_images`). Stage 3 also
keeps the gradient of an earlier step for weights that have none in the first pass of a step.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from sweet import collector
from sweet.errors import UsageError
from sweet.files import write_whole
from sweet.hints import option
from sweet.learn.engine import Engine, OtherModels, read_checkpoint, trainable_weights
from sweet.learn.estimate import ZeroSettings
from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.lora import merged
from sweet.learn.sequences import TokenSequence
from sweet.learn.trainee import Start, Trainee
from sweet.learn.vision_processor import VisionProcessor
from sweet.llm.adapter import find_adapter

T = TypeVar("T")

CHECKPOINT_FILE = "settled.json"
"""Next to the checkpoint folders: names the valid one. Replaced when a checkpoint is complete."""


def init_ranks(device: Literal["cpu", "cuda"]) -> torch.device:
    """Join the other ranks that the launcher has started; return this rank's device."""
    os.environ["DS_ACCELERATOR"] = device  # DeepSpeed would use an available GPU
    with collector.paused():  # DeepSpeed collects garbage each time that it is initialized
        import deepspeed
        from deepspeed.runtime import compiler

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # Its Muon optimizer, which is not used here, is compiled when it is imported: that loads torch's compiler, which
    # takes each rank two seconds.
    compiler.compile = lambda: lambda function: function
    if device == "cpu":
        # Its shared-memory communication would be compiled for minutes, and an interrupted compiler leaves locks.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        rank_device = torch.device("cpu")
    else:
        rank_device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(rank_device)
    deepspeed.init_distributed(dist_backend="gloo" if device == "cpu" else "nccl", auto_mpi_discovery=False)
    return rank_device


@contextmanager
def partitioned_loading(settings: ZeroSettings, clip: float) -> Iterator[None]:
    """Load models partitioned as in `settings` while the context is open. All ranks must load together."""
    if settings.stage < 3:
        yield
        return
    from transformers.integrations import deepspeed as integration

    library: Any = integration
    config = library.HfDeepSpeedConfig(deepspeed_config(settings, clip, torch.distributed.get_world_size()))
    try:
        yield
    finally:
        del config  # the library uses it as long as the object exists
        library.unset_hf_deepspeed_config()


def load_in_ranks(start: Start, device: Literal["cpu", "cuda"], settings: ZeroSettings, clip: float) -> Trainee:
    """Load the model to train on all ranks together: partitioned under stage 3, otherwise on the CPU."""
    # An adapter to start from must be merged into unpartitioned weights.
    if settings.stage < 3 or find_adapter(start.base) is not None:
        return Trainee.load(start, "cpu")
    with partitioned_loading(settings, clip):
        return Trainee.load(start, device)


class _Forward(torch.nn.Module):
    """A scorer as a module."""

    scorer: _DeepSpeedScorer

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, sequences: Sequence[TokenSequence], other_ids: Tensor | None, top: int
    ) -> tuple[Tensor | None, dict[str, torch.Size], dict[str, Tensor]]:
        """Return the scores with gradients as one tensor and their shapes by name, and the other scores by name.

        ZeRO-3 counts the outputs that a loss uses, in which the ranks must not differ.
        """
        scores = vars(self.scorer.compute(sequences, other_ids, top))
        learned = {name: score for name, score in scores.items() if score is not None and score.requires_grad}
        joined = torch.cat([score.flatten() for score in learned.values()]) if learned else None
        fixed = {name: score for name, score in scores.items() if score is not None and name not in learned}
        return joined, {name: score.shape for name, score in learned.items()}, fixed


class _DeepSpeedScorer(Scorer):
    """A scorer whose forward passes go through DeepSpeed.

    With partitioned weights all ranks must run the model and its output layer equally often, because each time its
    weights are fetched from all ranks: so no tree is computed in segments, and logits in as many chunks on each rank.
    """

    deepspeed_engine: Any = None
    partitioned = False

    def compute(self, sequences: Sequence[TokenSequence], other_ids: Tensor | None, top: int) -> SpanScores:
        return super().__call__(sequences, other_ids, top)

    def chunks(self, positions: int, size: int) -> int:
        count = super().chunks(positions, size)
        if not self.partitioned:
            return count
        max_count = torch.tensor(count, device=self.device)
        torch.distributed.all_reduce(max_count, torch.distributed.ReduceOp.MAX)
        return int(max_count)

    def __call__(self, sequences: Sequence[TokenSequence], other_ids: Tensor | None = None, top: int = 0) -> SpanScores:
        # Weights fetched in inference mode cannot be updated afterwards. Leaving inference mode would enable gradients.
        grad_enabled = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(grad_enabled):
            joined, shapes, fixed = self.deepspeed_engine(sequences, other_ids, top)
        parts = () if joined is None else joined.split([shape.numel() for shape in shapes.values()])
        learned = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return SpanScores(**learned, **fixed)


class ZeroEngine(Engine):
    """The engine of one of several ranks.

    Args:
        model: with fp32 weights, on the CPU and the same on every rank, or loaded in `partitioned_loading`.
        clip: the maximum gradient norm.
        device: the result of `init_ranks`.
        vision: prepares the images of the sequences; None if none has images.
    """

    def __init__(
        self,
        model: Any,
        clip: float,
        settings: ZeroSettings,
        device: torch.device,
        vision: VisionProcessor | None = None,
    ) -> None:
        import deepspeed

        self.model, self.clip, self.settings = model, clip, settings
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self._zero = deepspeed.zero
        config = deepspeed_config(settings, clip, self.world)
        if settings.stage == 3:
            # Weight by weight, so that the whole model is never on the device.
            self._zero.Init(module=model, config_dict_or_path=config, dtype=torch.float32)
            for buffer in model.buffers():
                buffer.data = buffer.data.to(device)
        self._frozen = not all(parameter.requires_grad for parameter in model.parameters())
        forward = _Forward(model)
        self._engine, self._optimizer, *_ = deepspeed.initialize(
            model=forward,
            optimizer=self.new_optimizer(),
            config=config,
            dist_init_required=False,
        )
        self._engine.eval()
        # Testing FlexAttention's gradients runs a backward pass outside DeepSpeed, which ZeRO-3 does not support.
        forward.scorer = _DeepSpeedScorer(model, device=device, attention="blocks")
        forward.scorer.deepspeed_engine = self._engine
        forward.scorer.partitioned = settings.stage == 3
        forward.scorer.in_segments = forward.scorer.in_segments and not forward.scorer.partitioned
        if vision is not None:
            forward.scorer.require_images(vision)
        self.scorer = forward.scorer

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        self._engine.set_gradient_accumulation_boundary(last)
        # DeepSpeed averages over the ranks, while the gradients of a step are a sum.
        self._engine.backward(loss * self.world, scale_wrt_gas=False)
        if not last:
            self._engine.step()

    def step(self, lr: float) -> float:
        self.set_rates(self._optimizer, lr)
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
        content = {}
        for name, parameter in trainable_weights(self.model).items():
            with self._gathered([parameter]):
                if self.rank == 0:
                    content[name] = parameter.detach().to("cpu", copy=True)
        return content if self.rank == 0 else None

    @torch.no_grad()
    def merged_weights(self) -> dict[str, Tensor] | None:
        content = {}
        for name, weight in merged(self.model, self._gathered):
            if self.rank == 0:
                content[name] = weight.to("cpu", copy=True)
        return content if self.rank == 0 else None

    def stored_weights(self) -> dict[str, Tensor]:
        weights: dict[str, Any] = trainable_weights(self.model)
        return {name: weight.ds_tensor for name, weight in weights.items()} if self._partitioned else weights

    def release(self) -> None:
        if self._partitioned:
            self._engine.optimizer._partition_all_parameters()

    def _gathered(self, parameters: list[Any]) -> Any:
        """A context in which these parameters are complete."""
        return self._zero.GatheredParameters(parameters, enabled=self._partitioned)

    @property
    def _partitioned(self) -> bool:
        return self.settings.stage == 3

    # Checkpoints -----------------------------------------------------------------------------------------------

    def save(self, path: Path, state: dict[str, Any], other_models: OtherModels | None = None) -> None:
        """Each rank writes its part to a new folder next to `path`, which then names that folder."""
        tag = f"step-{state['step']}"
        folder = path.parent / tag
        self.state(folder)
        if other_models is not None:
            torch.save(other_models.state(folder), folder / f"others-{self.rank}.pt")
        torch.distributed.barrier()
        if self.rank == 0:
            metadata = {"tag": tag, "world": self.world, "stage": self.settings.stage, "state": state}
            write_whole(path, json.dumps(metadata).encode())
            for folder in path.parent.glob("step-*"):
                if folder.name != tag:
                    shutil.rmtree(folder)
        torch.distributed.barrier()

    def state(self, folder: Path | None = None) -> dict[str, Any]:
        """Write this rank's part of weights and optimizer to `folder`."""
        assert folder is not None, "the parts of all ranks are in one folder"
        self._engine.save_checkpoint(
            str(folder.parent), tag=folder.name, save_latest=False, exclude_frozen_parameters=self._frozen
        )
        return {}

    def load_state(self, state: dict[str, Any], folder: Path | None = None) -> None:
        """Restore what `state` wrote.

        Raises:
            UsageError: it is incomplete.
        """
        assert folder is not None, "the parts of all ranks are in one folder"
        loaded_path, _ = self._engine.load_checkpoint(
            str(folder.parent), tag=folder.name, load_module_strict=not self._frozen
        )
        if loaded_path is None:
            fix = "train without --resume"
            raise UsageError("The checkpoint is incomplete.", where=folder, fix=fix)

    def load(self, path: Path, digest: str, other_models: OtherModels | None = None) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            content = json.loads(path.read_text(encoding="utf-8"))
            return {name: content[name] for name in ("state", "world", "stage", "tag")}

        metadata = read_checkpoint(path, digest, read)
        state: dict[str, Any] = metadata["state"]
        layout = (metadata["world"], metadata["stage"])
        if layout != (self.world, self.settings.stage):
            raise UsageError(
                f"The checkpoint was made by {layout[0]} ranks with ZeRO {layout[1]}, and these are {self.world} with "
                f"ZeRO {self.settings.stage}: it is partitioned differently.",
                where=path,
                fix=f"--devices and {option('zero', layout[1])} as before, or train without --resume",
            )
        folder = path.parent / metadata["tag"]
        self.load_state({}, folder)
        if other_models is not None:
            models_path = folder / f"others-{self.rank}.pt"
            other_models.load_state(torch.load(models_path, map_location=self.scorer.device, weights_only=True), folder)
        return state


def deepspeed_config(settings: ZeroSettings, clip: float, world: int) -> dict[str, Any]:
    """DeepSpeed's configuration. Its batch size has no effect: the loop decides when a step ends."""
    zero: dict[str, Any] = {"stage": settings.stage}
    if settings.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if settings.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {
        "train_batch_size": world,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # Without ZeRO, DeepSpeed clips but does not expose the norm.
        "gradient_clipping": clip if settings.stage > 0 else 0.0,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": None,
    }
