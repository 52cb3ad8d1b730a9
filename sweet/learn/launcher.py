"""The launcher of the ranks on one machine: its command line, its environment, starting and stopping it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from sweet import supervisor
from sweet.installation import PACKAGE

ORPHAN_TIMEOUT = 10.0
"""Seconds that a launcher has to end its ranks once the command is gone."""
LAUNCHER = "sweet.learn.torch_launcher"
PROGRAM = "sweet.learn.worker"


def torch_launcher(
    nodes: int, rank: int, devices: int, master: str, port: int, folder: Path, program: str = PROGRAM
) -> list[str]:
    """The command that starts this node's ranks of the job in `folder`.

    Args:
        nodes, rank: number of nodes, and the number of this one.
        devices: ranks on this node.
        master, port: where the ranks meet.
        program: that each of them runs.
    """
    start = [LAUNCHER, f"--nnodes={nodes}", f"--nproc-per-node={devices}"]
    start += [f"--node-rank={rank}"] if nodes > 1 else []
    start += [f"--master-addr={master}", f"--master-port={port}", "--max-restarts=0", "--module"]
    return [sys.executable, "-m", *start, program, str(folder.absolute())]


def child_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a Python child process: it imports the same package and prints little."""
    environment = dict(base)
    root = str(Path(PACKAGE).parent)
    if root not in _installed():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, base.get("PYTHONPATH"))))
    environment["PYTHONSAFEPATH"] = "1"  # do not import from the working directory
    environment.setdefault("PYTHONWARNINGS", "ignore")
    return environment


def _installed() -> Sequence[str]:
    """The folders in which every Python of this installation finds packages."""
    import site

    return [*site.getsitepackages(), site.getusersitepackages()]


def with_loopback(master: str, environment: dict[str, str]) -> dict[str, str]:
    """The environment of launchers that meet at `master`: on a loopback address the host name may not resolve."""
    if sys.platform == "linux" and (master == "localhost" or master.startswith("127.")):
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment


def start(command: Sequence[str], environment: Mapping[str, str], out: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start a launcher that does not outlive this process; its output goes to `out`."""
    return subprocess.Popen(
        supervisor.supervised(command, ORPHAN_TIMEOUT),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT if out else None,
        env=dict(environment),
    )


def stop(process: subprocess.Popen[bytes], grace_period: float = 0.0) -> None:
    """End a launcher if it still runs, after `grace_period` seconds to end on SIGTERM."""
    if process.poll() is None and grace_period:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_period)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # the supervisor then kills everything at once
        process.wait()
