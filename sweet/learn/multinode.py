"""One node of a training on several nodes, each of which starts its own launcher.

The nodes share only the run's folder: the command on the first node writes the job there, and next to it what the nodes
need to know (`Rendezvous`). Each node starts torch's launcher with its number, and the ranks meet at an address of the
first node. A node reports by heartbeat that it is alive, monitors the command's heartbeat, and ends when any error
appears in the folder. srun starts this module on every node of an allocation (`python -m sweet.learn.multinode
FOLDER`); without Slurm the user starts the training's own command on every node, and the one on the first node is the
command itself.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from sweet.errors import SweetError, UsageError, first_line
from sweet.files import write_whole
from sweet.hints import Hint, option
from sweet.installation import VERSION, installed_versions
from sweet.learn import slurm
from sweet.learn.failure import LOG_PREFIX, error_fields, error_of, error_paths, has_known_error, write_error
from sweet.learn.heartbeat import ENDED, HEARTBEAT, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, Heartbeat, HeartbeatReader
from sweet.learn.launcher import child_environment, start, stop, torch_launcher, with_loopback
from sweet.regular import read_regular
from sweet.units import count

RENDEZVOUS = "nodes.json"
"""The file in a job's folder with its `Rendezvous`."""
LARGEST_FILE = 1 << 20
"""Most bytes of a file of another node that is read."""
JOIN_TIMEOUT = 600.0
"""Seconds within which nodes must join; torch's launchers wait for each other as long."""
GRACE_PERIOD = 5.0
"""Seconds in which launchers may end on their own once a rank has failed."""
POLL_INTERVAL = 0.1
"""Seconds between two checks for progress."""


def versions() -> dict[str, str]:
    """The versions that must be the same on all nodes."""
    own = {"sweet": VERSION, "python": platform.python_version()}
    return own | installed_versions(("torch", "transformers", "deepspeed"))


@dataclass(frozen=True)
class Rendezvous:
    """What each node needs to know.

    Attributes:
        nodes: number of nodes.
        master, port: where the ranks meet, an address of the first node.
        device: what the ranks compute on.
        devices: default number of ranks of a node.
        log: the log of the command's launcher; nodes started by the user log next to it.
    """

    nodes: int
    master: str
    port: int
    device: Literal["cpu", "cuda"]
    devices: int
    log: Path
    versions: Mapping[str, str] = field(default_factory=versions)

    def write(self, folder: Path) -> None:
        write_whole(folder / RENDEZVOUS, json.dumps(asdict(self) | {"log": str(self.log)}).encode())

    @classmethod
    def read(cls, folder: Path) -> Rendezvous:
        """Read the rendezvous file.

        Raises:
            UsageError: it does not exist, because the folder is not shared, or it is invalid.
        """
        try:
            fields = json.loads(read_regular(folder / RENDEZVOUS, LARGEST_FILE))
            return cls(**fields | {"log": Path(fields["log"])})
        except FileNotFoundError as error:
            raise UsageError(
                f"Node {socket.gethostname()} does not see the run: the disk is not shared.",
                where=folder,
                fix="use a run directory at the same path on all nodes, on a shared disk",
            ) from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            what = f"The rendezvous file of node 0 is invalid: {first_line(error)}."
            raise UsageError(
                what, where=folder / RENDEZVOUS, fix="one Python environment at the same path on all nodes"
            ) from error


def node_heartbeat(folder: Path, rank: int) -> Path:
    """The heartbeat file of a node."""
    return folder / f"node-{rank}"


def clear(folder: Path) -> None:
    """Remove the files of an earlier training from the folder."""
    for old in (folder / RENDEZVOUS, *folder.glob(node_heartbeat(folder, 0).name.replace("0", "*"))):
        old.unlink(missing_ok=True)


class NodeMonitor:
    """Monitors the heartbeats of other nodes (by rank) and of the command (`command`) in the job's folder."""

    def __init__(self, folder: Path, nodes: Sequence[int], command: bool = False) -> None:
        self._folder = folder
        self._listeners = {f"node-{rank}": HeartbeatReader(node_heartbeat(folder, rank)) for rank in nodes}
        self._command = HeartbeatReader(folder / HEARTBEAT)
        if command:
            self._listeners["command"] = self._command
        self._since: float | None = None

    def should_stop(self) -> bool:
        """Whether to end the local launcher: the training is over, or another node has failed, is gone, or never
        joined."""
        for member, listener in self._listeners.items():
            silent_for = listener.silence()
            if not listener.ended and silent_for > (HEARTBEAT_TIMEOUT if listener.started else JOIN_TIMEOUT):
                self._report_missing(member, listener, silent_for)
        if not self._command.ended and not error_paths(self._folder):
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since > GRACE_PERIOD

    def report_missing(self) -> None:
        """If ranks failed without a known reason, check whether that is because a node is gone."""
        deadline = time.monotonic() + 2.5 * HEARTBEAT_INTERVAL
        before = {member: listener.read() for member, listener in self._listeners.items()}
        # A node that never joined has reported the reason in the log.
        missing = [member for member in before if self._listeners[member].started]
        while missing and not has_known_error(self._folder) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
            missing = [member for member in missing if self._listeners[member].read() == before[member]]
            missing = [member for member in missing if not self._listeners[member].ended]
        for member in missing if not has_known_error(self._folder) else ():
            self._report_missing(member, self._listeners[member], self._listeners[member].silence())

    def _report_missing(self, member: str, listener: HeartbeatReader, silent_for: float) -> None:
        name = "the command on node 0" if listener is self._command else member.replace("-", " ")
        name += f" ({listener.host})" if listener.host else ""
        if listener.started:
            what = f"{name[0].upper()}{name[1:]} is gone: no heartbeat for {silent_for:.0f} seconds."
            fix: str = Hint(option("resume", True), " on all nodes continues from the last checkpoint")
        else:
            what = f"{name[0].upper()}{name[1:]} has not joined within {silent_for:.0f} seconds."
            fix = "start it too, with the same run directory on a shared disk"
        write_error(self._folder, member, SweetError(what, where=name, fix=fix))


def wait_for_job(root: Path, pattern: str, nodes: int) -> Path:
    """Wait for a training on `nodes` nodes to start, and return its folder.

    Args:
        root, pattern: the folder is searched for in `root` with this glob pattern.

    Raises:
        UsageError: the training is for another number of nodes.
        SweetError: none started in time.
    """
    started, old = time.monotonic(), {path: _text(path) for path in root.glob(f"{pattern}/{HEARTBEAT}")}
    while time.monotonic() - started < JOIN_TIMEOUT:
        for path in root.glob(f"{pattern}/{HEARTBEAT}"):
            if _text(path) not in ("", ENDED, old.get(path)) and (path.parent / RENDEZVOUS).exists():
                expected = Rendezvous.read(path.parent).nodes
                if expected != nodes:
                    what = f"Node 0 was started for {expected} nodes."
                    raise UsageError(
                        what,
                        where=option("nnodes", nodes),
                        fix=Hint("the same ", option("nnodes"), " on every node"),
                    )
                return path.parent
        time.sleep(10 * POLL_INTERVAL)
    raise SweetError(
        f"No training on several nodes started within {JOIN_TIMEOUT:.0f} seconds.",
        where=root,
        fix=Hint("start ", option("node_rank", 0), " too; the run directory must be on a disk that all nodes see"),
    )


def _text(path: Path) -> str:
    try:
        return read_regular(path, LARGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def run_node(folder: Path, rank: int, devices: int | None, log: Path | None) -> int:
    """Run this node's part of the job in `folder` and return the number of its ranks.

    Args:
        rank: the number of this node.
        devices: ranks of this node; None for the default of the rendezvous.
        log: a file for the output of launcher and ranks; None to print it.

    Raises:
        UsageError: this node cannot join.
        SweetError: this node or another one failed.
    """
    rendezvous = Rendezvous.read(folder)
    count = devices or rendezvous.devices
    monitor = NodeMonitor(folder, (), command=True)
    try:
        with ExitStack() as stack:
            heartbeat = _join(folder, rank, rendezvous)
            stack.callback(heartbeat.end)
            if rendezvous.device == "cuda":
                _check_devices(rank, count)
            command = torch_launcher(rendezvous.nodes, rank, count, rendezvous.master, rendezvous.port, folder)
            out = stack.enter_context(log.open("ab")) if log else None
            environment = with_loopback(rendezvous.master, child_environment(dict(os.environ)))
            process = start(command, environment, out)
            stack.callback(stop, process)
            while process.poll() is None and not monitor.should_stop():
                heartbeat.beat()
                time.sleep(POLL_INTERVAL)
            status = process.poll()
    except KeyboardInterrupt:
        fix: str = Hint(option("resume", True), " on all nodes continues from the last checkpoint")
        write_error(folder, f"node-{rank}", SweetError(f"N{_name(rank)[1:]} was stopped.", where=_name(rank), fix=fix))
        raise
    except Exception as error:
        write_error(folder, f"node-{rank}", error)
        raise
    if status == 0:
        return count
    if not has_known_error(folder):
        monitor.report_missing()
    if not error_paths(folder):
        what = "Node 0 ended before this node was done; see its error."
        if status is not None:
            what = f"The launcher of {_name(rank)} ended with status {status}, and no rank reported an error."
        write_error(folder, f"node-{rank}", SweetError(what, where=log or rendezvous.log))
    raise error_of(folder, log or rendezvous.log, status or 1)


def _join(folder: Path, rank: int, rendezvous: Rendezvous) -> Heartbeat:
    """Check that this node can join, claim its number, and start its heartbeat."""
    if rank >= rendezvous.nodes:
        what = f"There are {rendezvous.nodes} nodes, numbered from 0."
        raise UsageError(what, where=f"node {rank}", fix=option("node_rank", rendezvous.nodes - 1))
    own = versions()
    different = [
        f"{name} {own.get(name)} (node 0: {required})"
        for name, required in rendezvous.versions.items()
        if own.get(name) != required
    ]
    if different:
        what = f"The nodes have different versions: {', '.join(different)}."
        raise UsageError(what, where=_name(rank), fix="one Python environment at the same path on all nodes")
    path = node_heartbeat(folder, rank)
    try:
        path.touch(exist_ok=False)
    except FileExistsError as error:
        what = f"Another node is number {rank} already: {_text(path).partition(' ')[0]}."
        raise UsageError(what, where=_name(rank), fix="a number of its own for each, from 0") from error
    return Heartbeat(path)


def _check_devices(rank: int, wanted: int) -> None:
    import torch

    available = torch.cuda.device_count()
    if available < wanted:
        fix = (
            option("devices", available)
            if available
            else Hint("allocate GPUs on every node (sbatch --gpus-per-node), or ", option("device", "cpu"))
        )
        what = f"torch sees {count(available, 'GPU')}, but {wanted} are required."
        raise UsageError(what, where=_name(rank), fix=fix)


def _name(rank: int) -> str:
    return f"node {rank} ({socket.gethostname()})"


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # a regular end of this node
    try:
        run_node(folder, slurm.node_rank(os.environ), None, None)
    except SweetError as error:
        shared = (folder / RENDEZVOUS).exists()
        sys.stderr.write(f"{error}\n" if shared else f"{LOG_PREFIX}{json.dumps(error_fields(error))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
