"""What the options of a training say of where it runs and what it starts from, checked to go together."""

from __future__ import annotations

import torch

from sweet.errors import UsageError
from sweet.learn.lora import LoraSettings, check_peft
from sweet.learn.ranks import Layout, check_deepspeed, check_hostfile
from sweet.learn.trainee import Start
from sweet.library import resolve_device
from sweet.llm.adapter import find_adapter
from sweet.stages.train import TrainConfig

ZERO = 3
"""Several devices are mostly taken because one is too small for the model: the stage that needs least memory."""


def start_of(config: TrainConfig, base: str, on_gpu: bool, *, head: bool = False) -> Start:
    """What a training with these options starts from, with a regression head where it learns one.

    Raises:
        UsageError: options that do not go together, or peft is not installed.
    """
    recompute = {"on": True, "off": False, "auto": None if on_gpu else False}[config.gradient_checkpointing]
    given = {
        "--lora-alpha": config.lora_alpha,
        "--lora-target": config.lora_target or None,
        "--lora-output adapter": config.lora_output if config.lora_output == "adapter" else None,
    }
    if config.lora is None:
        named = ", ".join(name for name, value in given.items() if value is not None)
        if named:
            raise UsageError("There is no adapter to train without a rank.", where=named, fix="--lora 16")
        return Start(base, recompute=recompute, head=head)
    if config.engine == "openrlhf":
        fix = "--engine torch, or deepspeed for several devices"
        raise UsageError("LoRA is not handed to OpenRLHF.", where="--lora --engine openrlhf", fix=fix)
    check_peft()
    if config.lora_output == "adapter" and find_adapter(base) is not None:
        raise UsageError(
            "An adapter on an adapter has no base that a reader of it could load.",
            where=f"--lora-output adapter --model {base}",
            fix="--lora-output merged",
        )
    alpha = config.lora_alpha or 2 * config.lora
    lora = LoraSettings(config.lora, alpha, tuple(config.lora_target), config.seed)
    return Start(base, lora, config.lora_output, recompute, head)


def layout_of(config: TrainConfig) -> Layout | None:
    """Where the ranks are to run; None for the engine that has none.

    Raises:
        UsageError: options that do not go together, deepspeed or a GPU that is not there, a hostfile that is none.
    """
    several = {
        "--devices": config.devices,
        "--hostfile": config.hostfile,
        "--zero": config.zero,
        "--offload": None if config.offload == "none" else config.offload,
    }
    if config.engine == "torch":
        given = ", ".join(name for name, value in several.items() if value is not None)
        if given:
            raise UsageError("The torch engine trains on one device.", where=given, fix="--engine deepspeed")
        return None
    if config.engine == "openrlhf" and config.log_to:
        raise UsageError("OpenRLHF keeps its figures to itself.", where="--log-to", fix="--engine torch, or deepspeed")
    if config.engine == "openrlhf" and config.recipe == "upstream":
        what = "OpenRLHF's likelihood term is of the reply alone, and upstream's of the whole dialogue."
        raise UsageError(what, where="--recipe upstream --engine openrlhf", fix="--engine torch, or deepspeed")
    if config.engine == "deepspeed":
        check_deepspeed()
    stage = ZERO if config.zero is None else config.zero
    least = {"none": 0, "optimizer": 1, "all": 3}[config.offload]
    if stage < least:
        raise UsageError(
            f"ZeRO {stage} cannot offload this: --offload {config.offload} needs --zero {least} or more.",
            where="--offload",
            fix=f"--zero {least}",
        )
    if config.hostfile is not None:
        check_hostfile(config.hostfile)
    if config.hostfile is not None or config.engine == "openrlhf":  # whose command counts the GPUs itself
        return Layout(config.devices, config.hostfile)
    if resolve_device(config.device).type == "cpu":
        return Layout(config.devices or 1)
    there = torch.cuda.device_count()
    if (config.devices or 1) > there:
        raise UsageError(f"torch sees {there} GPUs.", where=f"--devices {config.devices}", fix=f"--devices {there}")
    return Layout(config.devices or there)
