"""Where a training runs, from its options: one device, several devices of this machine, or several nodes."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import torch

from sweet.errors import UsageError
from sweet.hf import resolve_device
from sweet.hints import Hint, listed, option
from sweet.learn import slurm
from sweet.learn.distributed import Layout, Nodes, check_deepspeed, check_hostfile
from sweet.training.config import LayoutOptions
from sweet.units import count

_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def layout_of(options: LayoutOptions) -> Layout | None:
    """Return where the ranks run; None for the engine torch, which has one process.

    Raises:
        UsageError: options do not go together, DeepSpeed or a GPU is missing, or the hostfile is not valid.
    """
    for_several_devices = {
        option("devices"): options.devices,
        option("hostfile"): options.hostfile,
        option("nnodes"): options.nnodes,
        option("node_rank"): options.node_rank,
        option("master_addr"): options.master_addr,
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
    _check_nodes(options)
    if by_slurm(options):
        return _slurm_layout(options)
    if options.hostfile is not None:
        check_hostfile(options.hostfile)
    if options.hostfile is not None or options.engine == "openrlhf":  # OpenRLHF's command counts the GPUs itself
        return Layout(options.devices, options.hostfile)
    nodes = None
    if options.nnodes is not None:
        nodes = Nodes(options.nnodes, options.master_addr or socket.gethostname(), options.node_rank)
    if resolve_device(options.device).type == "cpu":
        return Layout(options.devices or 1, nodes=nodes)
    gpus = torch.cuda.device_count()
    if (options.devices or 1) > gpus:
        raise UsageError(
            f"torch sees {count(gpus, 'GPU')}.", where=option("devices", options.devices), fix=option("devices", gpus)
        )
    return Layout(options.devices or gpus, nodes=nodes)


def by_slurm(options: LayoutOptions) -> bool:
    """Return whether the nodes are those of a Slurm job."""
    return options.hostfile == Path(slurm.NAME)


def unused_nodes(options: LayoutOptions) -> str | None:
    """Return a warning where a Slurm job has several nodes and the options use one of them."""
    count = slurm.allocated_nodes(os.environ)
    if count < 2 or options.hostfile is not None or options.nnodes is not None:
        return None
    return f"This Slurm job has {count} nodes and one is used: --engine deepspeed {slurm.WORD} uses all."


def _check_nodes(options: LayoutOptions) -> None:
    """Raise UsageError where options of several nodes do not go together."""
    if options.engine == "openrlhf" and (options.nnodes is not None or by_slurm(options)):
        what = "OpenRLHF's command is started by DeepSpeed's launcher, which reads hosts from a file."
        given = option("nnodes") if options.nnodes is not None else slurm.WORD
        raise UsageError(
            what, where=given, fix=Hint(option("hostfile", "FILE"), ", or ", option("engine", "deepspeed"))
        )
    if (options.nnodes is None) != (options.node_rank is None):
        given, other = option("nnodes"), option("node_rank")
        if options.nnodes is None:
            given, other = other, given
        what = "A node that is started separately needs to know how many nodes there are and which one it is."
        raise UsageError(what, where=given, fix=Hint(other, " too, or ", option("hostfile")))
    if options.nnodes is not None and options.hostfile is not None:
        what = Hint(
            "The hosts of a hostfile are started from here; with ", option("nnodes"), " each is started separately."
        )
        raise UsageError(what, where=Hint(option("hostfile"), ", ", option("nnodes")), fix="one of the two")
    if options.nnodes is not None and options.node_rank is not None and options.node_rank >= options.nnodes:
        what = f"The first of {options.nnodes} nodes is 0 and the last {options.nnodes - 1}."
        raise UsageError(
            what, where=option("node_rank", options.node_rank), fix=option("node_rank", options.nnodes - 1)
        )
    if options.master_addr is not None and not _ADDRESS.fullmatch(options.master_addr):
        what = f"{options.master_addr!r} is neither a host name nor an IPv4 address."
        raise UsageError(what, where=option("master_addr"), fix="no port: node 0 chooses a free one and announces it")
    if options.master_addr is not None and options.nnodes is None and not by_slurm(options):
        what = "Only nodes with a launcher each need the address of node 0."
        raise UsageError(
            what, where=option("master_addr"), fix=Hint("omit it, or add ", option("nnodes"), f", or {slurm.WORD}")
        )


def _slurm_layout(options: LayoutOptions) -> Layout:
    """Return a layout with a launcher on each node of the Slurm job that this process is in.

    Raises:
        UsageError: this process is in no Slurm job, or the job does not have the requested GPUs.
    """
    job = slurm.allocation(os.environ)
    master = options.master_addr or job.hosts[0]
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
