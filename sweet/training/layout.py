"""Where a training runs, from its options: one device, several devices of this machine, or several machines."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.hints import option
from sweet.learn import slurm
from sweet.learn.distributed import Layout, check_deepspeed, read_hostfile
from sweet.training.config import TrainConfig
from sweet.units import count


def layout_of(config: TrainConfig) -> Layout | None:
    """Return where the ranks run; None for the engines torch and tinker, which have one process here.

    Raises:
        UsageError: options do not go together, DeepSpeed or a GPU is missing, or the hostfile is not valid.
    """
    for_several_devices = {
        "--devices": config.devices,
        "--hostfile": config.hostfile,
        "--zero": config.zero,
        "--offload": None if config.offload == "none" else config.offload,
    }
    if config.engine in ("torch", "tinker"):
        options = [name for name, value in for_several_devices.items() if value is not None]
        if options:
            what = f"The engine {config.engine} trains on one device, or on those of its service."
            raise UsageError(what, where=", ".join(options), fix="--engine deepspeed")
        return None
    if config.engine == "deepspeed":
        check_deepspeed()
    min_stage = {"none": 0, "optimizer": 1, "all": 3}[config.offload]
    if config.zero_stage < min_stage:
        raise UsageError(
            f"ZeRO {config.zero_stage} cannot offload this: {option('offload', config.offload)} needs "
            f"{option('zero', min_stage)} or more.",
            where="--offload",
            fix=option("zero", min_stage),
        )
    if by_slurm(config):
        return _slurm_layout(config)
    if config.hostfile is not None:
        read_hostfile(config.hostfile)  # checks it
    if config.hostfile is not None or config.engine == "openrlhf":  # OpenRLHF's command counts the GPUs itself
        return Layout(config.devices, config.hostfile)
    if resolve_device(config.device).type == "cpu":
        return Layout(config.devices or 1)
    gpus = torch.cuda.device_count()
    if (config.devices or 1) > gpus:
        raise UsageError(
            f"torch sees {count(gpus, 'GPU')}.", where=option("devices", config.devices), fix=option("devices", gpus)
        )
    return Layout(config.devices or gpus)


def by_slurm(config: TrainConfig) -> bool:
    """Return whether the nodes are those of a Slurm job."""
    return config.hostfile == Path(slurm.NAME)


def unused_nodes(config: TrainConfig) -> str | None:
    """Return a warning where a Slurm job has several nodes and the options use one of them."""
    count = slurm.allocated_nodes(os.environ)
    if count < 2 or config.hostfile is not None:
        return None
    return f"This Slurm job has {count} nodes and one is used: --engine deepspeed {slurm.WORD} uses all."


def _slurm_layout(config: TrainConfig) -> Layout:
    """Return a layout with a launcher on each node of the Slurm job that this process is in.

    Raises:
        UsageError: this process is in no Slurm job, or the job does not have the requested GPUs.
    """
    job = slurm.allocation(os.environ)
    if resolve_device(config.device).type == "cuda":
        devices = config.devices or job.gpus or torch.cuda.device_count()
        if devices > (job.gpus or devices):
            what = f"Slurm has allocated {count(job.gpus or 0, 'GPU')} of each node."
            raise UsageError(what, where=option("devices", config.devices), fix=option("devices", job.gpus))
        return Layout(devices, nodes=replace(job, gpus=devices))
    if config.device == "auto":
        gpus = f"has {count(job.gpus, 'GPU')} per node, and torch sees none here" if job.gpus else "has no GPUs"
        fix = "call it in the script for sbatch, on a node of the job" if job.gpus else "sbatch --gpus-per-node=8"
        raise UsageError(f"The Slurm job {gpus}.", where=slurm.WORD, fix=f"{fix}, or --device cpu")
    return Layout(config.devices or 1, nodes=replace(job, gpus=None))
