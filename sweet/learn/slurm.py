"""The nodes that Slurm has allocated, and how a program is started once on each.

Slurm says in the environment what it gave: the nodes as one expression (`gpu[01-03,7],login-a`), which `scontrol show
hostnames` takes apart where it is installed, and the GPUs of a node. One launcher a node is started with srun.
DeepSpeed's own runner for Slurm is of no use here: it drops `--module`, asks for ssh, and gives no process its rank.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from sweet.errors import SweetError, UsageError, first_line

NAME = "slurm"
"""In the place of a hostfile: the nodes of the allocation."""
WORD = f"--hostfile {NAME}"
_MOST = 65536
"""Hosts that one expression may stand for."""
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_PART = re.compile(r"\[([0-9,-]+)\]|([A-Za-z0-9._-]+)")
_NAME = re.compile(rf"(?:{_PART.pattern})+")
_OF_OTHER_TASKS = re.compile(r"(SLURM|SRUN)_(\w*_PER_(TASK|GPU)|\w*_BIND(_\w+)?|DISTRIBUTION)")
"""What srun reads as options and a job may have set for one task a GPU: a node's one launcher needs all of the node."""


@dataclass(frozen=True)
class Allocation:
    """What Slurm has given.

    Attributes:
        hosts: the nodes, in Slurm's order.
        gpus: of each node; None where Slurm does not say, 0 where there are none.
    """

    hosts: tuple[str, ...]
    gpus: int | None


def allocated_nodes(environment: Mapping[str, str]) -> int:
    """How many nodes the Slurm job has that this process is in; 0 outside of one."""
    count = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or "0"
    return int(count) if count.isdecimal() and "SLURM_JOB_ID" in environment else 0


def allocation(environment: Mapping[str, str]) -> Allocation:
    """What the Slurm job has that this process is in.

    Raises:
        UsageError: this is no Slurm job, srun is not there, or Slurm has started this command several times.
    """
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not nodes:
        what = "This is no Slurm job: SLURM_JOB_NODELIST is not set."
        raise UsageError(what, where=WORD, fix="call it in a script for sbatch, or after salloc; or name a hostfile")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        raise UsageError(
            f"Slurm has started this command {tasks} times. It calls srun itself, for a launcher on each node.",
            where=WORD,
            fix="leave out srun before it",
        )
    if shutil.which("srun") is None:
        what = "srun is not found, with which the launchers are started."
        raise UsageError(what, where=WORD, fix="load Slurm's commands into PATH, or name a hostfile")
    return Allocation(_hosts(nodes), _gpus(environment))


def _hosts(nodes: str) -> tuple[str, ...]:
    """The names in an expression: scontrol knows all its forms."""
    if shutil.which("scontrol") is None:
        return tuple(expand(nodes))
    try:
        said = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        cause = str(getattr(error, "stderr", None) or first_line(error)).strip()
        raise SweetError(f"scontrol does not name the nodes: {cause}", where=nodes, fix="name a hostfile") from error
    hosts = tuple(said.stdout.split())
    if not hosts:
        raise SweetError("scontrol names no node.", where=nodes, fix="name a hostfile")
    return hosts


def expand(nodes: str) -> list[str]:
    """The names that a list of nodes as Slurm writes it stands for: `a[01-03,7]-x,b` is a01-x a02-x a03-x a7-x b.

    A number keeps the zeros before it. Several brackets in a name stand for every combination, the last one fastest.

    Raises:
        UsageError: the text is no such list.
    """
    found: list[str] = []
    for name in re.split(r",(?![^\[\]]*\])", nodes):
        if not _NAME.fullmatch(name):
            raise _no_list(nodes, f"{name!r} is no name")
        parts = [_numbers(inside, nodes) if inside else [plain] for inside, plain in _PART.findall(name)]
        if len(found) + prod(map(len, parts)) > _MOST:
            raise _no_list(nodes, f"it stands for more than {_MOST:,} names")
        found += map("".join, product(*parts))
    return found


def _numbers(inside: str, nodes: str) -> list[str]:
    """What brackets stand for: `01-03,7` is 01 02 03 7."""
    found: list[str] = []
    for one in inside.split(","):
        ends = _RANGE.fullmatch(one)
        first, last = (ends[1], ends[2] or ends[1]) if ends else ("1", "0")
        if not 0 <= int(last) - int(first) < _MOST:
            raise _no_list(nodes, f"{one!r} is no range of numbers")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _no_list(nodes: str, why: str) -> UsageError:
    return UsageError(f"Slurm's list of nodes is not understood: {why}.", where=nodes, fix="name a hostfile")


def _gpus(environment: Mapping[str, str]) -> int | None:
    """GPUs of a node: those of this one, else what was asked for (`8`, `a100:8`, `a100:4,h100:4`)."""
    here = environment.get("SLURM_GPUS_ON_NODE", "")
    if here.isdecimal():
        return int(here)
    asked = environment.get("SLURM_GPUS_PER_NODE", "")
    counts = [part.rpartition(":")[2] for part in asked.split(",")]
    return sum(map(int, counts)) if all(map(str.isdecimal, counts)) else None


def on_each(nodes: int, gpus: int | None, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` once on each node of the allocation, with so many GPUs where given.

    It gets every core that the job has there, beside whatever runs, and the failure of one ends all.
    """
    start = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--export=ALL", "--label"]
    start += ["--kill-on-bad-exit=1", "--overlap", "--cpu-bind=none"]
    start += [f"--gpus-per-node={gpus}"] if gpus else []
    return [*start, *command]


def for_srun(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for `on_each`, without what the job has set for tasks of another cut."""
    return {name: value for name, value in environment.items() if not _OF_OTHER_TASKS.fullmatch(name)}


def node_rank(environment: Mapping[str, str]) -> int:
    """Which node srun has started this process on.

    Raises:
        UsageError: it was not started by srun.
    """
    number = environment.get("SLURM_NODEID", "")
    if not number.isdecimal():
        raise UsageError("SLURM_NODEID is not set: srun has not started this.", where="sweet.learn.multinode", fix=WORD)
    return int(number)
