"""The Ray cluster that was asked for, and its machines.

Ray is an extra and is imported when a cluster is opened. It is started here only for `local`; in every other case it
runs already, and nothing of it is changed.
"""

from __future__ import annotations

import importlib
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sweet.errors import ServerError, UsageError, first_line


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
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"Ray is not installed: {first_line(error)}", where=f"--ray {address}", fix="pip install 'sweet-rl[ray]'"
        ) from error
    own = {"include_dashboard": False} if address == "local" else {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        fix = "ray start --head, or --ray local" if address == "auto" else "ray status --address ADDRESS tells of it"
        raise ServerError(f"No Ray cluster answers: {first_line(error)}", where=f"--ray {address}", fix=fix) from error
    finally:
        for number, handler in handlers.items():  # Ray takes SIGTERM for itself
            signal.signal(number, handler)
    try:
        yield Cluster(ray, address)
    finally:
        ray.shutdown()
