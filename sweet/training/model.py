"""The model that a training starts from, with what encodes dialogues for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.hints import option
from sweet.learn.batches import GPU_TOKENS
from sweet.learn.lora import LoraSettings, check_peft
from sweet.learn.tokens import ChatEncoder
from sweet.learn.trainee import Start, Trainee
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import context_length
from sweet.stages.base import Packing
from sweet.training.config import LoraConfig, TrainingConfig

CPU_TOKENS = 2048
"""Tokens of one forward pass of a training on a CPU, where `--micro-batch-tokens` is not given."""


@dataclass(frozen=True)
class StartingModel:
    """A model that is going to be trained.

    Attributes:
        base: its name: a directory or a hub id.
        trainee: with weights where this process trains it, otherwise with shapes only.
        on_gpu: whether it is trained on GPUs.
        sees_pages: whether the encoder shows screenshots.
        max_length: tokens of a sequence at most; None where the model has no limit.
    """

    base: str
    trainee: Trainee
    encoder: ChatEncoder
    on_gpu: bool
    sees_pages: bool
    max_length: int | None

    def token_budget(self, given: int | None) -> int:
        """Return the tokens of one forward pass of its training, for the option `--micro-batch-tokens`."""
        return given or (GPU_TOKENS if self.on_gpu else CPU_TOKENS)


def recompute_layers(
    choice: Literal["auto", "on", "off"], packing: Packing = "tree", *, on_gpu: bool, one_process: bool = True
) -> bool | None:
    """Return `Start.recompute` for the options `--gradient-checkpointing` and `--packing`.

    Raises:
        UsageError: segments are computed again in any case, and only by one process.
    """
    if packing != "segments":
        return {"on": True, "off": False, "auto": None if on_gpu else False}[choice]
    if choice == "on":
        what = "Segments are computed again in the backward pass anyway."
        raise UsageError(what, where="--gradient-checkpointing on", fix="--gradient-checkpointing auto")
    if not one_process:
        what = "Only one process on one device can go through a tree segment by segment."
        raise UsageError(what, where="--packing segments", fix="--packing tree")
    return False


def start_of(
    base: str,
    lora: LoraConfig,
    *,
    recompute: bool | None = False,
    head: bool = False,
    head_seed: int | None = None,
) -> Start:
    """Return the start of a training from `base`.

    Args:
        recompute: see `Start`.
        head: whether a regression head is trained with it.
        head_seed: see `Start`.

    Raises:
        UsageError: options do not go together, or peft is not installed.
    """
    if lora.lora is None:
        options = {
            "--lora-alpha": lora.lora_alpha,
            "--lora-target": lora.lora_target or None,
            "--lora-output adapter": lora.lora_output if lora.lora_output == "adapter" else None,
        }
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise UsageError("An adapter needs a rank.", where=", ".join(given), fix="--lora 16")
        return Start(base, recompute=recompute, head=head, head_seed=head_seed)
    check_peft()
    if lora.lora_output == "adapter" and find_adapter(base) is not None:
        raise UsageError(
            "An adapter that is trained on an adapter has no base that a reader could load.",
            where=f"--lora-output adapter {option('model', base)}",
            fix="--lora-output merged",
        )
    settings = LoraSettings(lora.lora, lora.lora_alpha or 2 * lora.lora, tuple(lora.lora_target), lora.seed)
    return Start(base, settings, lora.lora_output, recompute, head, head_seed)


def starting_model(
    config: TrainingConfig,
    base: str,
    encoder: ChatEncoder,
    load: Callable[..., Trainee],
    *,
    one_process: bool,
    head: bool = False,
    head_seed: int | None = None,
    sees_pages: bool = False,
) -> StartingModel:
    """Return the model to train.

    Args:
        load: takes the start, and the tokenizer as `tokenizer`.
        one_process: whether one process trains it.
        head, head_seed, sees_pages: see `start_of` and `StartingModel`.
    """
    on_gpu = resolve_device(config.device).type == "cuda"
    recompute = recompute_layers(config.gradient_checkpointing, config.packing, on_gpu=on_gpu, one_process=one_process)
    start = start_of(base, config, recompute=recompute, head=head, head_seed=head_seed)
    trainee = load(start, tokenizer=encoder.tokenizer)
    length = config.max_length or context_length(trainee.model)
    return StartingModel(base, trainee, encoder, on_gpu=on_gpu, sees_pages=sees_pages, max_length=length)
