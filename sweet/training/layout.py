"""What the options of a training say of where it runs and what it starts from, checked to go together."""

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
from sweet.learn.lora import LoraSettings, check_peft
from sweet.learn.trainee import Start
from sweet.llm.adapter import find_adapter
from sweet.training.config import TrainConfig

ZERO = 3
"""Several devices are mostly taken because one is too small for the model: the stage that needs least memory."""
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def start_of(config: TrainConfig, base: str, on_gpu: bool, *, head: bool = False) -> Start:
    """What a training with these options starts from, with a regression head where it learns one.

    Raises:
        UsageError: options that do not go together, or peft is not installed.
    """
    recompute = {"on": True, "off": False, "auto": None if on_gpu else False}[config.gradient_checkpointing]
    given = {
        option("lora_alpha"): config.lora_alpha,
        option("lora_target"): config.lora_target or None,
        option("lora_output", "adapter"): config.lora_output if config.lora_output == "adapter" else None,
    }
    if config.lora is None:
        named = [name for name, value in given.items() if value is not None]
        if named:
            what = "There is no adapter to train without a rank."
            raise UsageError(what, where=listed(named), fix=option("lora", 16))
        return Start(base, recompute=recompute, head=head)
    if config.engine == "openrlhf":
        fix = Hint(option("engine", "torch"), ", or deepspeed for several devices")
        raise UsageError(
            "LoRA is not handed to OpenRLHF.", where=Hint(option("lora"), " ", option("engine", "openrlhf")), fix=fix
        )
    check_peft()
    if config.lora_output == "adapter" and find_adapter(base) is not None:
        raise UsageError(
            "An adapter on an adapter has no base that a reader of it could load.",
            where=Hint(option("lora_output", "adapter"), " ", option("model", base)),
            fix=option("lora_output", "merged"),
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
        option("devices"): config.devices,
        option("hostfile"): config.hostfile,
        option("nnodes"): config.nnodes,
        option("node_rank"): config.node_rank,
        option("master_addr"): config.master_addr,
        option("zero"): config.zero,
        option("offload"): None if config.offload == "none" else config.offload,
    }
    if config.engine == "torch":
        given = [name for name, value in several.items() if value is not None]
        if given:
            what = "The torch engine trains on one device."
            raise UsageError(what, where=listed(given), fix=option("engine", "deepspeed"))
        return None
    if config.engine == "openrlhf" and config.log_to:
        raise UsageError(
            "OpenRLHF keeps its figures to itself.",
            where=option("log_to"),
            fix=Hint(option("engine", "torch"), ", or deepspeed"),
        )
    if config.engine == "openrlhf" and config.recipe == "upstream":
        what = "OpenRLHF's likelihood term is of the reply alone, and upstream's of the whole dialogue."
        raise UsageError(
            what,
            where=Hint(option("recipe", "upstream"), " ", option("engine", "openrlhf")),
            fix=Hint(option("engine", "torch"), ", or deepspeed"),
        )
    if config.engine == "deepspeed":
        check_deepspeed()
    stage = ZERO if config.zero is None else config.zero
    least = {"none": 0, "optimizer": 1, "all": 3}[config.offload]
    if stage < least:
        raise UsageError(
            Hint(
                f"ZeRO {stage} cannot offload this: ",
                option("offload", config.offload),
                " needs ",
                option("zero", least),
                " or more.",
            ),
            where=option("offload"),
            fix=option("zero", least),
        )
    _check_nodes(config)
    if by_slurm(config):
        return _slurm_layout(config)
    if config.hostfile is not None:
        check_hostfile(config.hostfile)
    if config.hostfile is not None or config.engine == "openrlhf":  # whose command counts the GPUs itself
        return Layout(config.devices, config.hostfile)
    nodes = None
    if config.nnodes is not None:
        nodes = Nodes(config.nnodes, config.master_addr or socket.gethostname(), config.node_rank)
    if resolve_device(config.device).type == "cpu":
        return Layout(config.devices or 1, nodes=nodes)
    there = torch.cuda.device_count()
    if (config.devices or 1) > there:
        raise UsageError(
            f"torch sees {there} GPUs.", where=option("devices", config.devices), fix=option("devices", there)
        )
    return Layout(config.devices or there, nodes=nodes)


def by_slurm(config: TrainConfig) -> bool:
    """Whether the nodes are those of a Slurm job."""
    return config.hostfile == Path(slurm.NAME)


def unused_nodes(config: TrainConfig) -> str | None:
    """What to say where a Slurm job has several nodes and the options take one of them."""
    count = slurm.allocated_nodes(os.environ)
    if count < 2 or config.hostfile is not None or config.nnodes is not None:
        return None
    return f"This Slurm job has {count} nodes and one is used: --engine deepspeed {slurm.WORD} takes all."


def _check_nodes(config: TrainConfig) -> None:
    """Raise UsageError where options of several nodes do not go together."""
    if config.engine == "openrlhf" and (config.nnodes is not None or by_slurm(config)):
        what = "OpenRLHF's command is started by DeepSpeed's launcher, which takes hosts from a file."
        given = option("nnodes") if config.nnodes is not None else slurm.WORD
        raise UsageError(
            what, where=given, fix=Hint(option("hostfile", "FILE"), ", or ", option("engine", "deepspeed"))
        )
    if (config.nnodes is None) != (config.node_rank is None):
        given, other = option("nnodes"), option("node_rank")
        if config.nnodes is None:
            given, other = other, given
        what = "Where each node is started by itself, it is told how many there are and which it is."
        raise UsageError(what, where=given, fix=Hint(other, " too, or ", option("hostfile")))
    if config.nnodes is not None and config.hostfile is not None:
        what = "The hosts of a hostfile are started from here; with --nnodes each is started by itself."
        raise UsageError(what, where=Hint(option("hostfile"), ", ", option("nnodes")), fix="one of the two")
    if config.nnodes is not None and config.node_rank is not None and config.node_rank >= config.nnodes:
        what = f"Of {config.nnodes} nodes the first is 0 and the last {config.nnodes - 1}."
        raise UsageError(what, where=option("node_rank", config.node_rank), fix=option("node_rank", config.nnodes - 1))
    if config.master_addr is not None and not _ADDRESS.fullmatch(config.master_addr):
        what = f"{config.master_addr!r} is neither a host name nor an IPv4 address."
        raise UsageError(what, where=option("master_addr"), fix="without a port: node 0 takes a free one, and tells it")
    if config.master_addr is not None and config.nnodes is None and not by_slurm(config):
        what = "Only nodes with a launcher each are told where to meet."
        raise UsageError(
            what, where=option("master_addr"), fix=Hint("leave it out, or add ", option("nnodes"), f", or {slurm.WORD}")
        )


def _slurm_layout(config: TrainConfig) -> Layout:
    """A launcher on each node of the Slurm job that this process is in.

    Raises:
        UsageError: this is no such job, or it has not the GPUs that are asked for.
    """
    job = slurm.allocation(os.environ)
    master = config.master_addr or job.hosts[0]
    if resolve_device(config.device).type == "cuda":
        devices = config.devices or job.gpus or torch.cuda.device_count()
        if devices > (job.gpus or devices):
            what = f"Slurm has given {job.gpus} GPUs of each node."
            raise UsageError(what, where=option("devices", config.devices), fix=option("devices", job.gpus))
        return Layout(devices, nodes=Nodes(len(job.hosts), master, gpus=devices))
    if config.device == "auto":
        given = f"has {job.gpus} GPUs a node, and torch sees none here" if job.gpus else "has no GPUs"
        fix = "call it in the script for sbatch, on a node of the job" if job.gpus else "sbatch --gpus-per-node=8"
        raise UsageError(f"The Slurm job {given}.", where=slurm.WORD, fix=Hint(f"{fix}, or ", option("device", "cpu")))
    return Layout(config.devices or 1, nodes=Nodes(len(job.hosts), master))
