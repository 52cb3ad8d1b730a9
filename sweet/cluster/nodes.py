"""The Ray cluster that was asked for, and its machines.

Ray is an extra and is imported when a cluster is opened. It is started here only for `local`; in every other case it
runs already, and nothing of it is changed.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.errors import ServerError, UsageError, first_line
from sweet.installation import install_command

_TOKEN_HINT = "; where the cluster wants a token, RAY_AUTH_MODE=token and the token in ~/.ray/auth_token"

ANSWER_SECONDS = 10.0
"""So long a cluster may take to answer at all."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Attributes:
        id: Ray's.
        name: its address, with the beginning of the id, as several nodes may run on one machine.
        cpus, gpus: how many it gives to the cluster.
    """

    id: str
    name: str
    cpus: int
    gpus: int


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that this process has joined. `ray` is the module."""

    ray: Any
    address: str

    def nodes(self) -> list[Node]:
        """Those that are alive and do work, by name."""
        found = []
        for row in self.ray.nodes():
            given = row.get("Resources", {})
            if row["Alive"] and given.get("CPU", 0) >= 1:
                name = f"{row['NodeManagerAddress']} ({row['NodeID'][:6]})"
                found.append(Node(row["NodeID"], name, int(given["CPU"]), int(given.get("GPU", 0))))
        return sorted(found, key=lambda node: node.name)


@contextmanager
def open_cluster(address: str) -> Iterator[Cluster]:
    """Join a cluster for a while.

    Args:
        address: `local` starts one on this machine that ends with the block; `auto` is the one that this machine
            belongs to; else HOST:PORT of a cluster's head, or ray://HOST:PORT.

    Raises:
        UsageError: Ray is not installed.
        ServerError: no cluster answers there.
    """
    if address != "local" and "ray" not in sys.modules:  # afterwards it is too late
        _show_token()
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"Ray is not installed: {first_line(error)}", where=f"--ray {address}", fix=install_command("ray")
        ) from error
    own = {"include_dashboard": False} if address == "local" else {}
    found = address if address == "local" else _answering(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(found, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _nobody(address, first_line(error), _TOKEN_HINT) from error
    finally:
        for number, handler in handlers.items():  # Ray takes SIGTERM for itself
            signal.signal(number, handler)
    _quieten()
    try:
        yield Cluster(ray, address)
    finally:
        ray.shutdown()


def _show_token() -> None:
    """Tell Ray, before it is imported, to show a cluster the token that there is. By itself it does not, though a head
    that is started where there is one wants to see it, and Ray makes one for `local`. Other clusters do not look."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if any(map(os.environ.get, names)) or Path.home().joinpath(".ray", "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def nodes_of(address: str) -> list[Node]:
    """The machines that a cluster has now; errors as of `open_cluster`."""
    with open_cluster(address) as cluster:
        return cluster.nodes()


def _quieten() -> None:
    """Keep Ray from printing: it tells of lost nodes on stdout, which is for data, and we tell of them ourselves. There
    is no option for it."""
    worker: Any = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _answering(address: str) -> str:
    """Where the cluster is, after a look whether somebody answers there: Ray itself waits for minutes.

    Raises:
        ServerError: nobody does, or no cluster is known here.
    """
    found = address
    if address == "auto":
        found = os.environ.get("RAY_ADDRESS") or _known_here()
        if not found:
            raise _nobody(address, "this machine belongs to none")
    host, _, port = found.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _nobody(address, f"{found}: {first_line(error)}") from error
    return found


def _known_here() -> str:
    """The address that Ray leaves for others on the machine of a node; empty where there is none."""
    try:
        return Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _nobody(address: str, why: str, hint: str = "") -> ServerError:
    fix = "ray start --head, or --ray local" if address == "auto" else f"ray status --address {address}"
    return ServerError(f"No Ray cluster answers: {why}", where=f"--ray {address}", fix=fix + hint)
