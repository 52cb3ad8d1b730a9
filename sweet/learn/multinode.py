"""One node of a training over several, where each starts a launcher of its own.

The run's folder is all that the nodes share, and all they need: the command on the first one leaves there the job, and
beside it what the nodes have to know (`Gathering`). Each starts torch's launcher with its number, and the ranks meet at
an address of the first. A node shows by a pulse that it lives, watches the command's, and ends when any error is left
in the folder. srun starts this module on every node of an allocation (`python -m sweet.learn.multinode FOLDER`); by
hand a training's own command does the same on all nodes but the first, which is the command itself.
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
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from sweet.errors import SweetError, UsageError, first_line
from sweet.files import write_whole
from sweet.hints import Hint, option
from sweet.installation import VERSION
from sweet.learn import slurm
from sweet.learn.failure import LOG_PREFIX, error_fields, error_of, error_paths, has_known_error, write_error
from sweet.learn.heartbeat import ENDED, HEARTBEAT, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, Heartbeat, HeartbeatReader
from sweet.learn.launcher import child_environment, start, stop, torch_launcher, with_loopback

RENDEZVOUS = "nodes.json"
"""In the folder of a job: a `Gathering`."""
JOIN_TIMEOUT = 600.0
"""Seconds that nodes have to come; torch's launchers wait as long for each other."""
GRACE_PERIOD = 5.0
"""Seconds in which launchers end by themselves once a rank has failed."""
POLL_INTERVAL = 0.1
"""Seconds between two looks at the news."""


def versions() -> dict[str, str]:
    """What must be the same on all nodes."""
    found = {"sweet": VERSION, "python": platform.python_version()}
    for name in ("torch", "transformers", "deepspeed"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@dataclass(frozen=True)
class Rendezvous:
    """What each node has to know.

    Attributes:
        nodes: how many there are.
        master, port: where the ranks meet, an address of the first node.
        device: what the ranks compute on.
        devices: ranks of a node that is not told otherwise.
        log: what the command's launcher prints into; those of nodes started by hand print beside it.
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
        """Raise UsageError where it is not there, as the folder is another disk's, or not to be understood."""
        try:
            words = json.loads((folder / RENDEZVOUS).read_text(encoding="utf-8"))
            return cls(**words | {"log": Path(words["log"])})
        except FileNotFoundError as error:
            raise UsageError(
                f"Node {socket.gethostname()} does not see the run: its disk is not shared.",
                where=folder,
                fix="a run directory at the same path on all nodes, on a disk that all see",
            ) from error
        except (OSError, ValueError, TypeError, KeyError) as error:
            what = f"What node 0 has left for the others is not understood: {first_line(error)}."
            raise UsageError(
                what, where=folder / RENDEZVOUS, fix="one Python environment at the same path on all nodes"
            ) from error


def node_heartbeat(folder: Path, rank: int) -> Path:
    return folder / f"node-{rank}"


def clear(folder: Path) -> None:
    """Remove what an earlier training by nodes has left in the folder."""
    for old in (folder / RENDEZVOUS, *folder.glob(node_heartbeat(folder, 0).name.replace("0", "*"))):
        old.unlink(missing_ok=True)


class NodeMonitor:
    """What the others are at, for one who works in the folder: the nodes by their ranks, the command (`command`)."""

    def __init__(self, folder: Path, nodes: Sequence[int], command: bool = False) -> None:
        self._folder = folder
        self._listeners = {f"node-{rank}": HeartbeatReader(node_heartbeat(folder, rank)) for rank in nodes}
        self._command = HeartbeatReader(folder / HEARTBEAT)
        if command:
            self._listeners["command"] = self._command
        self._since: float | None = None

    def should_stop(self) -> bool:
        """Whether to end what still runs here: another one has failed, is gone, or never came; or all is over."""
        for member, listener in self._listeners.items():
            silent_for = listener.silence()
            if not listener.ended and silent_for > (HEARTBEAT_TIMEOUT if listener.started else JOIN_TIMEOUT):
                self._report_missing(member, listener, silent_for)
        if not self._command.ended and not error_paths(self._folder):
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since > GRACE_PERIOD

    def report_missing(self) -> None:
        """Where ranks have failed for no reason that they know, look whether that is because a node is gone."""
        deadline = time.monotonic() + 2.5 * HEARTBEAT_INTERVAL
        before = {member: listener.read() for member, listener in self._listeners.items()}
        missing = [
            member for member in before if self._listeners[member].started
        ]  # who never came has said why in the log
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
            what = f"{name[0].upper()}{name[1:]} is gone: nothing was heard of it for {silent_for:.0f} seconds."
            fix: str = Hint(option("resume", True), " on all nodes goes on from the last checkpoint")
        else:
            what = f"{name[0].upper()}{name[1:]} has not come within {silent_for:.0f} seconds."
            fix = "start it too, with the same run directory on a disk that all nodes see"
        write_error(self._folder, member, SweetError(what, where=name, fix=fix))


def wait_for_job(root: Path, pattern: str, nodes: int) -> Path:
    """The folder, below `places` after `pattern`, of a training by so many nodes that goes on now.

    Raises:
        UsageError: it is one of another number of nodes.
        SweetError: none came.
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
        f"No training by several nodes began within {JOIN_TIMEOUT:.0f} seconds.",
        where=root,
        fix=Hint("start ", option("node_rank", 0), " too; the run directory must be on a disk that all nodes see"),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def run_node(folder: Path, rank: int, devices: int | None, log: Path | None) -> int:
    """Do this node's part of the job in `folder`; the number of its ranks.

    Args:
        devices: ranks of this node; None as many as the gathering says.
        log: a file for what launcher and ranks print; None where that is printed.

    Raises:
        UsageError: this node cannot take part.
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
        fix: str = Hint(option("resume", True), " on all nodes goes on from the last checkpoint")
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
        what = "Node 0 has ended before this one was done; it says why."
        if status is not None:
            what = f"The launcher of {_name(rank)} ended with status {status}, and no rank has said why."
        write_error(folder, f"node-{rank}", SweetError(what, where=log or rendezvous.log))
    raise error_of(folder, log or rendezvous.log, status or 1)


def _join(folder: Path, rank: int, rendezvous: Rendezvous) -> Heartbeat:
    """Take a node's place."""
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
        raise UsageError(f"torch sees {available} GPUs, and {wanted} are to be used.", where=_name(rank), fix=fix)


def _name(rank: int) -> str:
    return f"node {rank} ({socket.gethostname()})"


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # in order: no death of this node
    try:
        run_node(folder, slurm.node_rank(os.environ), None, None)
    except SweetError as error:
        shared = (folder / RENDEZVOUS).exists()
        sys.stderr.write(f"{error}\n" if shared else f"{LOG_PREFIX}{json.dumps(error_fields(error))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
