"""Joins a Ray cluster and lists its nodes.

Ray is an optional dependency and is imported when a cluster is opened. The cluster runs already, and nothing of it is
changed. Whoever reaches one of its ports and has its token can run programs on it.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.errors import ServerError, UsageError, first_line
from sweet.hints import option
from sweet.installation import install_command
from sweet.paths import home

_TOKEN_HINT = "; if the cluster requires a token, RAY_AUTH_MODE=token and the token in ~/.ray/auth_token"

CONNECT_TIMEOUT = 10.0
"""Seconds that a cluster's head may take to accept a connection."""

_SILENT = {"RAY_DEDUP_LOGS": "1", "RAY_DEDUP_LOGS_ALLOW_REGEX": "", "RAY_DEDUP_LOGS_SKIP_REGEX": "^"}
"""Makes Ray drop every line that it would print on the driver's stdout."""


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes:
        id: Ray's node id.
        name: its address and the first digits of the id, because several nodes may run on one machine.
        cpus, gpus: how many it contributes to the cluster.
    """

    id: str
    name: str
    cpus: int
    gpus: int


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that this process has joined. `ray` is the imported module."""

    ray: Any
    address: str

    def nodes(self) -> list[Node]:
        """The nodes that are alive and have at least one CPU, sorted by name."""
        nodes = []
        for row in self.ray.nodes():
            resources = row.get("Resources", {})
            if row["Alive"] and resources.get("CPU", 0) >= 1:
                name = f"{row['NodeManagerAddress']} ({row['NodeID'][:6]})"
                nodes.append(Node(row["NodeID"], name, int(resources["CPU"]), int(resources.get("GPU", 0))))
        return sorted(nodes, key=lambda node: node.name)


@contextmanager
def open_cluster(address: str) -> Iterator[Cluster]:
    """Join a cluster until the context is closed.

    Args:
        address: `auto` is the cluster that this machine belongs to; otherwise HOST:PORT of a cluster's head, or
            ray://HOST:PORT.

    Raises:
        UsageError: Ray is not installed.
        ServerError: no cluster answers at the address.
    """
    try:
        ray = import_ray()
    except ImportError as error:
        raise UsageError(
            f"Ray is not installed: {first_line(error)}", where=option("ray", address), fix=install_command("ray")
        ) from error
    target = _reachable(address)
    with ExitStack() as stack:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            stack.callback(ray.shutdown)
            ray.init(target, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise _no_cluster(address, first_line(error), _TOKEN_HINT) from error
        finally:
            for number, handler in handlers.items():  # Ray installs its own handler of SIGTERM
                signal.signal(number, handler)
        yield Cluster(ray, address)


def import_ray() -> Any:
    """Import Ray with the settings that it reads from the environment at that moment.

    Ray prints messages about lost nodes on stdout, which is reserved for data; the scheduler reports them itself. Ray
    has no switch for this, but it drops lines that match RAY_DEDUP_LOGS_SKIP_REGEX.

    Ray does not use an authentication token unless it is configured to, although a head that is started where a token
    exists requires it. Therefore token authentication is switched on if there is a token; clusters without
    authentication ignore it.

    Raises:
        ImportError: Ray is not installed.
    """
    if "ray" not in sys.modules and _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    before = {name: os.environ.get(name) for name in _SILENT}
    os.environ.update(_SILENT)
    try:
        return importlib.import_module("ray")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _has_token() -> bool:
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return any(map(os.environ.get, names)) or home().joinpath(".ray", "auth_token").is_file()


def _reachable(address: str) -> str:
    """The cluster's address, after checking that its port accepts connections: Ray itself would wait for minutes.

    Raises:
        ServerError: it does not, or `auto` and this machine belongs to no cluster.
    """
    target = address
    if address == "auto":
        target = os.environ.get("RAY_ADDRESS") or _local_node_address()
        if not target:
            raise _no_cluster(address, "this machine belongs to none")
    host, _, port = target.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, f"{target}: {first_line(error)}") from error
    return target


def _local_node_address() -> str:
    """The address that Ray writes to a file on each node's machine; empty if there is no such file."""
    try:
        return Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _no_cluster(address: str, why: str, hint: str = "") -> ServerError:
    fix = "ray start --head" if address == "auto" else f"ray status --address {address}"
    return ServerError(f"No Ray cluster answers: {why}", where=option("ray", address), fix=f"{fix}{hint}")
