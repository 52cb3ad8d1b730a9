"""The script for Slurm's `sbatch` that runs `sweet train` on an allocation.

The script calls `sweet train RUN --recipe FILE` once, on the first node; on several nodes the trainings start their
ranks themselves (`hostfile = "slurm"` in the recipe). `sweet train` continues where it stopped, so the job may be
interrupted at any time: Slurm requeues it after a preemption or the failure of a node, and the script does so before
the time limit, when Slurm sends it SIGUSR1: `sweet train` is ended by SIGTERM, and if it ended because of that, the job
is queued again. `scancel` and an error of `sweet train` end the job.

Values in the header are restricted to the characters that they need, and every word of the command is quoted.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from sweet.errors import Interrupted
from sweet.pipeline.tables import Table

STOP_SECONDS = 300
"""Seconds before the time limit at which `sweet train` is ended; Slurm may send the signal up to a minute earlier."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]*"
Name = Annotated[str, StringConstraints(pattern=rf"^{_NAME}(,{_NAME})*$")]
Gpus = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]*:)?[1-9][0-9]*$")]
Memory = Annotated[str, StringConstraints(pattern=r"^[0-9]+[KMGT]?$")]
Time = Annotated[str, StringConstraints(pattern=r"^([0-9]+-[0-9]+(:[0-9]+){0,2}|[0-9]+(:[0-9]+){0,2})$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00\r\n]*$")]


class SlurmTable(Table):
    """The table [slurm] of a recipe: the resources of the job. Options that are not given are left to the cluster."""

    nodes: int = Field(default=1, ge=1)
    """Nodes. With several, the trainings need `engine = "deepspeed"` and `hostfile = "slurm"`."""
    gpus_per_node: Annotated[int, Field(ge=1)] | Gpus | None = None
    """GPUs of each node, as a number or with a type (h100:8)."""
    cpus_per_task: int | None = Field(default=None, ge=1)
    """Cores of each node; the job has one task on each."""
    mem: Annotated[int, Field(ge=0)] | Memory | None = None
    """Memory of each node, such as 900G; 0 for all of it."""
    time: Annotated[int, Field(ge=1)] | Time | None = None
    """Time limit in Slurm's notation: minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS. The job is queued again before
    it."""
    partition: Name | None = None
    """Partition, or several with commas."""
    account: Name | None = None
    """Account that pays for the job."""
    qos: Name | None = None
    """Quality of service."""
    exclusive: bool = False
    """Use whole nodes."""
    setup: list[Line] = Field(default_factory=list)
    """Shell commands before `sweet train`, one a line, such as `module load cuda`. Those of a recipe are run as they
    are."""


def batch_script(
    run: Path,
    table: SlurmTable,
    *,
    words: Sequence[str] = (),
    folder: Path | None = None,
    python: str = sys.executable,
) -> str:
    """Return the script for `sbatch`.

    Args:
        run: the run directory, on a disk that all nodes see.
        words: the options of `sweet train`.
        folder: the working directory, from which relative paths are read; the current one by default.
        python: the Python that has `sweet`, at the same path on all nodes.
    """
    header = ["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(table, run))]
    command = shlex.join([python, "-m", "sweet", "train", str(run), *words])
    body = _BODY.format(
        folder=shlex.quote(str((folder or Path.cwd()).absolute())),
        setup="".join(f"{line}\n" for line in table.setup),
        command=command,
        stopped=Interrupted.exit_code,
    )
    return "\n".join([*header, body])


def _options(table: SlurmTable, run: Path) -> list[str]:
    """Return the options of sbatch."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", run.absolute().name)
    given = {
        "job-name": f"sweet-{name}",
        "nodes": table.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": table.gpus_per_node,
        "cpus-per-task": table.cpus_per_task,
        "mem": table.mem,
        "time": table.time,
        "partition": table.partition,
        "account": table.account,
        "qos": table.qos,
        "signal": f"B:USR1@{STOP_SECONDS}",
        "open-mode": "append",
    }
    options = [f"--{option}={value}" for option, value in given.items() if value is not None]
    return [*options, *(["--exclusive"] if table.exclusive else []), "--requeue"]


_BODY = """\
# Written by sweet train --slurm. It may be submitted again at any time: sweet train continues where it stopped.
cd -- {folder} || exit 1
train= again= ended=
end() {{
  ended=yes
  [ -z "$train" ] || kill -TERM "$train" 2>/dev/null
}}
trap 'again=yes; end' USR1 # from Slurm, before the time limit
trap end TERM
{setup}{command} &
train=$!
[ -z "$ended" ] || end
while :; do
  wait "$train"
  status=$?
  kill -0 "$train" 2>/dev/null || break # otherwise a signal has interrupted wait
done
case $again$status in
  yes{stopped} | yes143) scontrol requeue "$SLURM_JOB_ID" ;; # 143: it was ended before it had started
esac
exit "$status"
"""
