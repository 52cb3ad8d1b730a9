"""Reads a Slurm allocation and starts a program once on each of its nodes.

Slurm describes the allocation in environment variables: the nodes as a compressed list (`gpu[01-03,7],login-a`), which
`scontrol show hostnames` expands, and the GPUs of each node. srun starts one launcher on each node.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweet.errors import SweetError, UsageError, first_line

NAME = "slurm"
"""Given instead of a hostfile: use the nodes of the allocation."""
WORD = f"--hostfile {NAME}"
_FIX = "load Slurm's commands into PATH, or pass a hostfile"
_TASK_OPTIONS = re.compile(r"(SLURM|SRUN)_(\w*_PER_(TASK|GPU)|\w*_BIND(_\w+)?|DISTRIBUTION)")
"""Options of srun that a job may have set for one task per GPU. The single launcher of a node needs the whole node."""


@dataclass(frozen=True)
class Allocation:
    """The resources that Slurm has allocated.

    Attributes:
        hosts: host names of the nodes, in Slurm's order; at the first one the launchers meet.
        gpus: GPUs of each node; None if Slurm does not say, 0 if there are none.
    """

    hosts: tuple[str, ...]
    gpus: int | None


def allocated_nodes(environment: Mapping[str, str]) -> int:
    """The number of nodes of the Slurm job that this process runs in; 0 outside a job."""
    count = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or "0"
    return int(count) if count.isdecimal() and "SLURM_JOB_ID" in environment else 0


def allocation(environment: Mapping[str, str]) -> Allocation:
    """Return the allocation of the Slurm job that this process runs in.

    Raises:
        UsageError: this is not a Slurm job, srun is not found, or Slurm has started this command several times.
        SweetError: scontrol is not found or does not expand the node list.
    """
    nodes = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not nodes:
        what = "This is not a Slurm job: SLURM_JOB_NODELIST is not set."
        raise UsageError(what, where=WORD, fix="run it in a script for sbatch, or after salloc; or pass a hostfile")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        raise UsageError(
            f"Slurm has started this command {tasks} times. It calls srun itself, for a launcher on each node.",
            where=WORD,
            fix="run it without srun",
        )
    if shutil.which("srun") is None:
        what = "srun is not found; it starts the launchers."
        raise UsageError(what, where=WORD, fix=_FIX)
    return Allocation(_hosts(nodes), _gpus(environment))


def _hosts(nodes: str) -> tuple[str, ...]:
    """Expand a node list (`gpu[01-03,7],login-a`) to host names with scontrol, which knows every form of it."""
    try:
        result = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        cause = str(getattr(error, "stderr", None) or first_line(error)).strip()
        raise SweetError(f"scontrol does not expand the node list: {cause}", where=nodes, fix=_FIX) from error
    hosts = tuple(result.stdout.split())
    if not hosts:
        raise SweetError("scontrol expands the node list to no host.", where=nodes, fix=_FIX)
    return hosts


def _gpus(environment: Mapping[str, str]) -> int | None:
    """GPUs of each node: those of this node, otherwise the request (`8`, `a100:8`, `a100:4,h100:4`)."""
    gpus_on_node = environment.get("SLURM_GPUS_ON_NODE", "")
    if gpus_on_node.isdecimal():
        return int(gpus_on_node)
    requested = environment.get("SLURM_GPUS_PER_NODE", "")
    counts = [part.rpartition(":")[2] for part in requested.split(",")]
    return sum(map(int, counts)) if all(map(str.isdecimal, counts)) else None


def srun_command(nodes: int, gpus: int | None, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` once on each node of the allocation.

    Each task gets all cores that the job has on the node, even if another step is using them. If one task fails, srun
    ends all of them.

    Args:
        gpus: GPUs that each task gets; None or 0 for none.
    """
    start = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--export=ALL", "--label"]
    start += ["--kill-on-bad-exit=1", "--overlap", "--cpu-bind=none"]
    start += [f"--gpus-per-node={gpus}"] if gpus else []
    return [*start, *command]


def srun_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for `srun_command`: `environment` without options that the job has set for smaller tasks."""
    return {name: value for name, value in environment.items() if not _TASK_OPTIONS.fullmatch(name)}
