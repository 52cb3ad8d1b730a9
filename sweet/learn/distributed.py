"""Trains on several ranks, from the point of view of the command that the user started.

The command stays one process: it writes the manifest and the metrics and prints to the terminal. The ranks are child
processes, started by torch's launcher on this machine, by DeepSpeed's launcher on the hosts of a hostfile, or by one
torch launcher on each of several nodes (`sweet.learn.multinode`), which srun or the user starts. The ranks read the job
(`sweet.learn.job`) from a folder and report their progress there, so with several machines the run's directory must be
on a shared disk.

    command ── supervisor ── launcher ── rank 0, 1, … (and over ssh, on other hosts)
    command ── supervisor ── srun ── on each node: node ── supervisor ── launcher ── ranks
    command ── supervisor ── launcher ── ranks       and on each further node the same command, as its node

The supervisor ends the launcher when the command is gone for any reason (`sweet.supervisor`). A rank ends with its
launcher and, on other hosts, when the command's heartbeat stops. The output of launcher and ranks goes to a log.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.installation import install_command, unsuitable_versions
from sweet.learn import slurm
from sweet.learn.failure import error_of, error_paths, has_known_error
from sweet.learn.heartbeat import HEARTBEAT, Heartbeat
from sweet.learn.job import FILE, PROGRESS, Job
from sweet.learn.launcher import (
    ORPHAN_TIMEOUT,
    PROGRAM,
    child_environment,
    start,
    stop,
    torch_launcher,
    with_loopback,
)
from sweet.learn.metrics import Record, Summary
from sweet.learn.multinode import POLL_INTERVAL, NodeMonitor, Rendezvous, clear
from sweet.llm.address import bind

_HOST = re.compile(r"(\S+)\s+slots=([1-9]\d*)")


@dataclass(frozen=True)
class Nodes:
    """Several nodes with one launcher each, whose ranks meet at an address of the first node.

    Attributes:
        rank: the number of this node if the user starts each one; None if srun starts them all.
        gpus: GPUs that srun requests on each node; None if the ranks compute on CPUs.
    """

    count: int
    master: str
    rank: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Layout:
    """The devices that ranks run on: on this machine, on each of several nodes, or on each host of a hostfile
    (`devices` None: as many as its slots)."""

    devices: int | None
    hostfile: Path | None = None
    nodes: Nodes | None = None


def check_deepspeed(where: Hint | None = None) -> None:
    """Raise UsageError if deepspeed is not installed, or in a version that computes wrong weights.

    Args:
        where: the option that needs it.
    """
    where = where or option("engine", "deepspeed")
    if find_spec("deepspeed") is None:
        raise UsageError("deepspeed is not installed.", where=where, fix=install_command("gpu"))
    wrong = unsuitable_versions().get("deepspeed")
    if wrong is not None:
        raise UsageError(
            f"Trainings need another version of deepspeed: {wrong}.", where=where, fix=install_command("gpu")
        )


def check_hostfile(path: Path) -> None:
    """Raise UsageError unless every line is `HOST slots=N`, empty, or a comment."""
    fix = "one line a host: HOST slots=N, where ssh HOST needs no password"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The hostfile cannot be read: {error}", where=path, fix=fix) from error
    entries = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    hosts = [(number, line) for number, line in entries if not line.startswith("#")]
    for number, line in hosts:
        if not _HOST.fullmatch(line):
            raise UsageError(f"Not a host and its slots: {line!r}", where=f"{path}, line {number}", fix=fix)
    if not hosts:
        raise UsageError("The hostfile names no host.", where=path, fix=fix)


def world_size(layout: Layout | None) -> int:
    """The number of ranks, if every node has as many as this one."""
    if layout is None or layout.hostfile is None:
        devices = (layout.devices if layout else None) or 1
        return devices * (layout.nodes.count if layout and layout.nodes else 1)
    hosts = [_HOST.fullmatch(line.strip()) for line in layout.hostfile.read_text(encoding="utf-8").splitlines()]
    return sum(layout.devices or int(host[2]) for host in hosts if host)


def launch_command(layout: Layout, folder: Path, port: int, program: str = PROGRAM) -> list[str]:
    """The command that starts the ranks of the job in `folder`; they meet at `port` of the first machine.

    Args:
        program: that each rank runs, where all of them are on this machine.
    """
    nodes = layout.nodes
    if nodes is not None and nodes.rank is None:
        node = [sys.executable, "-m", "sweet.learn.multinode", str(folder.absolute())]
        return slurm.srun_command(nodes.count, nodes.gpus, node)
    if nodes is not None:
        return torch_launcher(nodes.count, nodes.rank or 0, layout.devices or 1, nodes.master, port, folder)
    if layout.hostfile is None:
        return torch_launcher(1, 0, layout.devices or 1, "127.0.0.1", port, folder, program)
    # A single host of a hostfile is not necessarily this one.
    words = ["deepspeed.launcher.runner", f"--hostfile={layout.hostfile.absolute()}", "--force_multi"]
    words += [f"--num_gpus={layout.devices}"] if layout.devices else []
    words += [f"--master_port={port}", "--no_local_rank", "--module"]
    return [sys.executable, "-m", *words, PROGRAM, str(folder.absolute())]


def launch_environment(layout: Layout, base: dict[str, str]) -> dict[str, str]:
    """The launcher's environment, derived from the command's: the ranks import the same package and print little."""
    environment = child_environment(base)
    if layout.nodes is not None and layout.nodes.rank is None:
        return slurm.srun_environment(environment)
    if layout.hostfile is None:
        return with_loopback(layout.nodes.master if layout.nodes else "127.0.0.1", environment)
    return environment


def train_in_ranks(job: Job, layout: Layout, folder: Path, log: Path, on_record: Callable[[Record], None]) -> Summary:
    """Run the job on its ranks. Afterwards the model is in `job.output`.

    Args:
        folder: where the job, progress and checkpoints are stored; created if missing.
        log: a file for the output of launcher and ranks.
        on_record: called with the metrics of each step, as `Loop` reports them.

    Raises:
        SweetError: a rank failed; its own error, or the last lines of the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / PROGRESS, folder / HEARTBEAT, *error_paths(folder)):
        old.unlink(missing_ok=True)
    clear(folder)
    job.write(folder / FILE)
    with bind("127.0.0.1", 0) as socket:
        port = socket.getsockname()[1]
    nodes, monitor = layout.nodes, None
    if nodes is not None:
        Rendezvous(nodes.count, nodes.master, port, job.device, layout.devices or 1, log).write(folder)
        monitor = NodeMonitor(folder, range(0 if nodes.rank is None else 1, nodes.count))
    heartbeat = None if nodes is None and layout.hostfile is None else Heartbeat(folder / HEARTBEAT)
    uses_srun = nodes is not None and nodes.rank is None
    with log.open("ab") as out:
        environment = launch_environment(layout, dict(os.environ))
        process = start(launch_command(layout, folder, port), environment, out)
    try:
        summary = None
        for line in _progress_lines(process, folder / PROGRESS, heartbeat, monitor):
            if "record" in line:
                on_record(line["record"])
            else:
                summary = Summary(**line["summary"])
    finally:
        # srun ends its tasks on SIGTERM, not when it is killed.
        stop(process, ORPHAN_TIMEOUT if uses_srun else 0.0)
        if heartbeat is not None:
            heartbeat.end()
    if process.returncode != 0 or summary is None:
        if monitor is not None and not has_known_error(folder):
            monitor.report_missing()
        raise error_of(folder, log, process.returncode)
    return summary


def _progress_lines(
    process: subprocess.Popen[bytes], path: Path, heartbeat: Heartbeat | None, monitor: NodeMonitor | None
) -> Iterator[dict[str, Any]]:
    """The lines that rank 0 reports, until the launcher has ended or another node has failed."""
    partial, at = b"", 0
    running = True
    while running:
        running = process.poll() is None and not (
            monitor is not None and monitor.should_stop()
        )  # looked at before the last reading
        if heartbeat is not None:
            heartbeat.beat()
        if path.exists():
            with path.open("rb") as file:
                file.seek(at)
                read = file.read()
            at += len(read)
            *lines, partial = (partial + read).split(b"\n")
            yield from (json.loads(line) for line in lines)
        if running:
            time.sleep(POLL_INTERVAL)
