"""Where a training runs, from its options: one device, several devices of this machine, or several machines."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.hints import Hint, listed, option
from sweet.learn import slurm
from sweet.learn.distributed import Layout, Nodes, check_deepspeed, read_hostfile
from sweet.training.config import LayoutOptions
from sweet.units import count


def layout_of(options: LayoutOptions) -> Layout | None:
    """Return where the ranks run; None for the engine torch, which has one process.

    Raises:
        UsageError: options do not go together, DeepSpeed or a GPU is missing, or the hostfile is not valid.
    """
    for_several_devices = {
        option("devices"): options.devices,
        option("hostfile"): options.hostfile,
        option("zero"): options.zero,
        option("offload"): None if options.offload == "none" else options.offload,
    }
    if options.engine == "torch":
        given = [name for name, value in for_several_devices.items() if value is not None]
        if given:
            what = "The torch engine trains on one device."
            raise UsageError(what, where=listed(given), fix=option("engine", "deepspeed"))
        return None
    if options.engine == "deepspeed":
        check_deepspeed()
    least = {"none": 0, "optimizer": 1, "all": 3}[options.offload]
    if options.zero_stage < least:
        raise UsageError(
            Hint(
                f"ZeRO {options.zero_stage} cannot offload this: ",
                option("offload", options.offload),
                " needs ",
                option("zero", least),
                " or more.",
            ),
            where=option("offload"),
            fix=option("zero", least),
        )
    if by_slurm(options):
        return _slurm_layout(options)
    if options.hostfile is not None:
        read_hostfile(options.hostfile)  # checks it
    if options.hostfile is not None or options.engine == "openrlhf":  # OpenRLHF's command counts the GPUs itself
        return Layout(options.devices, options.hostfile)
    if resolve_device(options.device).type == "cpu":
        return Layout(options.devices or 1)
    gpus = torch.cuda.device_count()
    if (options.devices or 1) > gpus:
        raise UsageError(
            f"torch sees {count(gpus, 'GPU')}.", where=option("devices", options.devices), fix=option("devices", gpus)
        )
    return Layout(options.devices or gpus)


def by_slurm(options: LayoutOptions) -> bool:
    """Return whether the nodes are those of a Slurm job."""
    return options.hostfile == Path(slurm.NAME)


def unused_nodes(options: LayoutOptions) -> str | None:
    """Return a warning where a Slurm job has several nodes and the options use one of them."""
    count = slurm.allocated_nodes(os.environ)
    if count < 2 or options.hostfile is not None:
        return None
    return f"This Slurm job has {count} nodes and one is used: --engine deepspeed {slurm.WORD} uses all."


def _slurm_layout(options: LayoutOptions) -> Layout:
    """Return a layout with a launcher on each node of the Slurm job that this process is in.

    Raises:
        UsageError: this process is in no Slurm job, the job does not have the requested GPUs, or OpenRLHF would train.
    """
    if options.engine == "openrlhf":
        what = "OpenRLHF's command is started by DeepSpeed's launcher, which reads hosts from a file."
        raise UsageError(
            what, where=slurm.WORD, fix=Hint(option("hostfile", "FILE"), ", or ", option("engine", "deepspeed"))
        )
    job = slurm.allocation(os.environ)
    master = job.hosts[0]
    if resolve_device(options.device).type == "cuda":
        devices = options.devices or job.gpus or torch.cuda.device_count()
        if devices > (job.gpus or devices):
            what = f"Slurm has allocated {count(job.gpus or 0, 'GPU')} of each node."
            raise UsageError(what, where=option("devices", options.devices), fix=option("devices", job.gpus))
        return Layout(devices, nodes=Nodes(len(job.hosts), master, gpus=devices))
    if options.device == "auto":
        found = f"has {count(job.gpus, 'GPU')} per node, and torch sees none here" if job.gpus else "has no GPUs"
        fix = "call it in the script for sbatch, on a node of the job" if job.gpus else "sbatch --gpus-per-node=8"
        raise UsageError(f"The Slurm job {found}.", where=slurm.WORD, fix=Hint(f"{fix}, or ", option("device", "cpu")))
    return Layout(options.devices or 1, nodes=Nodes(len(job.hosts), master))
