"""Trains on several ranks, from the point of view of the command that the user started.

The command stays one process: it writes the manifest and the metrics and prints to the terminal. torchrun starts the
ranks of each machine (`sweet.learn.launcher`) and numbers them over all machines. It is started on this machine as a
child process, on the hosts of a hostfile by ssh, and on the nodes of a Slurm job by srun. The ranks read the job
(`sweet.learn.job`) from a folder and report their progress there, so with several machines the run's directory must be
on a shared disk.

    command ── supervisor ── launcher ── rank 0, 1, …
    command ── supervisor ── ssh ── launcher ── ranks       for each host
    command ── supervisor ── srun ── launcher ── ranks      on each node

When a launcher fails, the command ends the others. The supervisor ends launcher, ssh or srun when the command is gone
for any reason (`sweet.supervisor`); an ssh that ends hangs up the launcher, which then ends its ranks. The output of
launchers and ranks goes to a log.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweet import supervisor
from sweet.errors import SweetError, UsageError
from sweet.installation import child_environment, install_command, unsuitable_versions
from sweet.learn import slurm
from sweet.learn.launcher import error_of, error_paths, has_known_error
from sweet.llm.servers import bind

LAUNCHER = "sweet.learn.launcher"
PROGRAM = "sweet.learn.worker"
PROGRESS = "progress.jsonl"
"""The file in a job's folder to which rank 0 writes what the command is to know."""
GRACE_PERIOD = 5.0
"""Seconds in which the launchers of other machines may end on their own once one has failed."""
STOP_TIMEOUT = 10.0
"""Seconds that ssh, srun or an orphaned launcher has to end its ranks."""
POLL_INTERVAL = 0.1
"""Seconds between two checks for progress."""

_HOST = re.compile(r"(\S+)\s+slots=([1-9]\d*)")
_SSH = ("ssh", "-tt", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3")
"""With a terminal (`-tt`), the end of the connection hangs up what was started by it."""
_SSH_FAILED = 255
_EXPORTED = re.compile(r"(NCCL|GLOO|UCX|FI|OMP|TORCH|PYTHON)\w*|HF_HOME|HF_HUB_OFFLINE|LD_LIBRARY_PATH|SWEET_CACHE")
"""Environment variables that ranks on the hosts of a hostfile get."""


@dataclass(frozen=True)
class Layout:
    """The devices that ranks run on: on this machine, on each node of a Slurm job, or on each host of a hostfile
    (`devices` None: as many as its slots). srun requests the GPUs of `nodes`; None if the ranks compute on CPUs."""

    devices: int | None
    hostfile: Path | None = None
    nodes: slurm.Allocation | None = None


def check_deepspeed(where: str | None = None) -> None:
    """Raise UsageError if deepspeed is not installed, or in a version that computes wrong weights.

    Args:
        where: the option that needs it.
    """
    where = where or "--engine deepspeed"
    if find_spec("deepspeed") is None:
        raise UsageError("deepspeed is not installed.", where=where, fix=install_command("gpu"))
    version_problem = unsuitable_versions().get("deepspeed")
    if version_problem is not None:
        raise UsageError(
            f"Trainings need another version of deepspeed: {version_problem}.", where=where, fix=install_command("gpu")
        )


def read_hostfile(path: Path) -> dict[str, int]:
    """The slots of each host of a hostfile.

    Raises:
        UsageError: a line is neither `HOST slots=N`, nor empty, nor a comment, or there is no host.
    """
    fix = "one line a host: HOST slots=N, where ssh HOST needs no password"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The hostfile cannot be read: {error}", where=path, fix=fix) from error
    hosts: dict[str, int] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        host = _HOST.fullmatch(line)
        if host is None or host[1].startswith("-"):
            raise UsageError(f"Not a host and its slots: {line!r}", where=f"{path}, line {number}", fix=fix)
        hosts[host[1]] = int(host[2])
    if not hosts:
        raise UsageError("The hostfile names no host.", where=path, fix=fix)
    return hosts


def world_size(layout: Layout | None) -> int:
    """The number of ranks."""
    if layout is None:
        return 1
    if layout.hostfile is not None:
        return sum(layout.devices or slots for slots in read_hostfile(layout.hostfile).values())
    return (layout.devices or 1) * (len(layout.nodes.hosts) if layout.nodes else 1)


def launch_commands(layout: Layout, folder: Path, port: int, program: str = PROGRAM) -> dict[str, list[str]]:
    """The commands that start the ranks of the job in `folder`, each with a name of what it starts.

    Args:
        port: of the first machine, at which the launchers meet.
        program: that each rank runs.
    """

    def launcher(machines: int, devices: int, *rendezvous: str) -> list[str]:
        options = [f"--nnodes={machines}", f"--nproc-per-node={devices}", "--max-restarts=0", "--rdzv-backend=c10d"]
        return [sys.executable, "-m", LAUNCHER, *options, *rendezvous, "-m", program, str(folder.absolute())]

    rdzv_id = f"--rdzv-id={secrets.token_hex(8)}"
    if layout.nodes is not None:
        hosts = layout.nodes.hosts
        words = launcher(len(hosts), layout.devices or 1, rdzv_id, f"--rdzv-endpoint={hosts[0]}:{port}")
        return {"srun": slurm.srun_command(len(hosts), layout.nodes.gpus, words)}
    if layout.hostfile is None:
        rendezvous = ("--rdzv-endpoint=127.0.0.1:0", "--rdzv-conf=is_host=1", "--local-addr=127.0.0.1")
        return {"the launcher": launcher(1, layout.devices or 1, rdzv_id, *rendezvous)}
    slots_of = read_hostfile(layout.hostfile)
    names = {host: host.rpartition("@")[2] for host in slots_of}
    master = next(iter(names.values()))
    commands = {}
    for host, slots in slots_of.items():
        conf = f"--rdzv-conf=is_host={int(names[host] == master)}"
        rendezvous = (f"--rdzv-endpoint={master}:{port}", conf, f"--local-addr={names[host]}")
        commands[host] = _by_ssh(host, launcher(len(slots_of), layout.devices or slots, rdzv_id, *rendezvous))
    return commands


def _by_ssh(host: str, command: Sequence[str]) -> list[str]:
    """The command that runs `command` on a host, in this working directory and with the variables of its ranks."""
    variables = [
        f"{name}={value}" for name, value in child_environment(dict(os.environ)).items() if _EXPORTED.fullmatch(name)
    ]
    return [*_SSH, host, f"cd {shlex.quote(str(Path.cwd()))} && exec {shlex.join(['env', *variables, *command])}"]


def launch_environment(layout: Layout, base: dict[str, str]) -> dict[str, str]:
    """The launcher's environment, derived from the command's: the ranks import the same package and print little."""
    environment = child_environment(base)
    if layout.nodes is not None:
        return slurm.srun_environment(environment)
    if layout.hostfile is None and sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host name may not resolve
    return environment


class Launchers:
    """The launchers of a job's ranks, one for each machine; when they are closed, they and the ranks are gone.

    Args:
        folder: with the job; errors of ranks are written there.
        log: a file for the output of launchers and ranks.
        program: that each rank runs.
        variables: more environment variables of ranks on this machine.
    """

    def __init__(
        self,
        layout: Layout,
        folder: Path,
        log: Path,
        program: str = PROGRAM,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._log = folder, log
        self._is_remote = layout.nodes is not None or layout.hostfile is not None
        for old in (folder / PROGRESS, *error_paths(folder)):
            old.unlink(missing_ok=True)
        self._progress = LineReader(folder / PROGRESS)
        with bind("127.0.0.1", 0) as socket:
            port = socket.getsockname()[1]
        environment = launch_environment(layout, dict(os.environ)) | dict(variables or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        with log.open("ab") as out:
            for name, command in launch_commands(layout, folder, port, program).items():
                self._processes[name] = subprocess.Popen(
                    supervisor.supervised(command, STOP_TIMEOUT),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )

    def progress(self) -> list[dict[str, Any]]:
        """What rank 0 has reported since the last call."""
        return self._progress.read()

    def are_running(self) -> bool:
        """Whether ranks are running.

        Raises:
            SweetError: one failed: its own error, or the last lines of the log. No launcher is left.
        """
        statuses = self._statuses()
        if any(statuses.values()):
            deadline = time.monotonic() + GRACE_PERIOD
            while None in statuses.values() and time.monotonic() < deadline:
                time.sleep(POLL_INTERVAL)
                statuses = self._statuses()
            self.close()
            raise self._error(statuses)
        return None in statuses.values()

    def close(self) -> None:
        """End all launchers and their ranks."""
        running = [process for process in self._processes.values() if process.poll() is None]
        if self._is_remote:  # ssh and srun end what they have started on SIGTERM, not when they are killed
            for process in running:
                process.terminate()
            deadline = time.monotonic() + STOP_TIMEOUT
            for process in running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # the supervisor then kills everything at once
                process.wait()

    def _statuses(self) -> dict[str, int | None]:
        return {name: process.poll() for name, process in self._processes.items()}

    def _error(self, statuses: Mapping[str, int | None]) -> SweetError:
        lost_hosts = [host for host, status in statuses.items() if status == _SSH_FAILED]
        if lost_hosts and self._is_remote and not has_known_error(self._folder):
            fix = f"ssh {shlex.quote(lost_hosts[0])} true; then --resume"
            return SweetError(f"The connection to {', '.join(lost_hosts)} has failed.", where=self._log, fix=fix)
        return error_of(self._folder, self._log, next(status for status in statuses.values() if status))


class LineReader:
    """Reads the new lines of a JSONL file that another process writes."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial, self._position = path, b"", 0

    def read(self) -> list[dict[str, Any]]:
        """The objects of the lines that were completed since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]
