"""TRL's DPOTrainer on the pairs of `learning`: the same pairs in the same order and steps, the same optimizer, weights
in fp32 computed in bf16, and layers recomputed where ours are.

As in `learning`, an epoch with a learning rate of 0 comes first, and reference log-probabilities are part of the time.
With flash-attn the micro-batches have no padding.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch

from benchmarks.gpu.machine import device, memory, reset_memory, synchronize
from benchmarks.gpu.models import Training, random_model
from benchmarks.gpu.results import Figures, Skipped
from sweet.learn.batches import epoch_order

MICRO = 4
"""Pairs of a micro-batch: at these lengths about as many tokens as `Size.budget`."""


def train_trl(training: Callable[[], Training], against: str) -> Figures:
    """Train and return the figures, with smaller micro-batches if the GPU's memory is too small.

    Raises:
        Skipped: TRL or datasets is not installed.
    """
    for library in ("trl", "datasets"):
        if find_spec(library) is None:
            raise Skipped(f"{library} is not installed")
    from benchmarks.learn_trl import make_rows

    made = training()
    order = epoch_order(made.examples, 0, 0, together=None)
    rows = make_rows(made.pool, [made.examples[i] for i in order])
    for micro in (MICRO, 2, 1):
        try:
            return _train(made, rows, min(micro, made.batch)) | {"against": against}
        except torch.OutOfMemoryError:
            if micro == 1:
                raise
        gc.collect()
        torch.cuda.empty_cache()
    raise AssertionError("unreachable")


def _train(made: Training, rows: list[dict[str, list[int]]], micro: int) -> Figures:
    """Train with micro-batches of so many pairs."""
    from benchmarks.learn_trl import losses_of, make_trainer

    policy, reference = (random_model(made.size, torch.float32) for _ in range(2))
    flash = find_spec("flash_attn") is not None and device().type == "cuda"
    if flash:
        policy.set_attn_implementation("flash_attention_2")
        reference.set_attn_implementation("flash_attention_2")
    settings = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": made.batch // micro,
        "gradient_checkpointing": made.recompute,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "bf16": device().type == "cuda",
        "use_cpu": device().type == "cpu",
        "dataloader_pin_memory": device().type == "cuda",
        **({"padding_free": True} if flash else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        make_trainer(policy, reference, rows, folder, learning_rate=0.0, **settings).train()
        trainer = make_trainer(policy, reference, rows, folder, learning_rate=made.lr, **settings)
        reset_memory()
        began = time.perf_counter()
        trainer.train()
        synchronize()
        seconds = time.perf_counter() - began
    tokens = 2 * sum(len(sequence.ids) for sequence in made.pool)  # policy and reference
    return {
        "seconds": seconds,
        "steps": trainer.state.global_step,
        "pairs_per_s": len(rows) / seconds,
        "tokens": tokens,
        "tokens_per_s": tokens / seconds,
        "peak_mib": memory(),
        "recomputed": made.recompute,
        "attention": "flash-attn, without padding" if flash else "sdpa",
        "micro_batch": micro,
        "values": losses_of(trainer),
    }
