"""`sweet doctor --ray`: every node of a Ray cluster runs the checks of `sweet doctor` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sweet.cluster.nodes import Node, open_cluster
from sweet.cluster.scheduler import Scheduler
from sweet.inspection.doctor import Check, DoctorConfig, as_json, run_doctor
from sweet.units import count

WHY = "work that is done with --ray"


def run_cluster_doctor(address: str, config: DoctorConfig, say: Callable[[str], None]) -> dict[str, list[Check]]:
    """Return the checks of every node by its name.

    A node that cannot run them, for instance with another version of sweet, has a single check that says why.

    Raises:
        ServerError: there is no cluster.
        SweetError: no node can run the checks.
    """
    with (
        open_cluster(address) as cluster,
        Scheduler[None, None](cluster, partial(_open, config), light=True, say=say) as scheduler,
    ):
        nodes = {node.name: node for node in cluster.nodes()}
        checks = {
            name: [_node_check(nodes[name]), *info["checks"]]
            for name, info in scheduler.node_info.items()
            if name in nodes
        }
        for name, why in scheduler.excluded.items():
            checks[name] = [
                Check("node", "problem", why, WHY, "install the same version of sweet on that node", required=True)
            ]
        return dict(sorted(checks.items()))


def nodes_as_json(nodes: dict[str, list[Check]]) -> dict[str, Any]:
    parts = {name: as_json(checks) for name, checks in nodes.items()}
    return {
        "stage": "doctor",
        "healthy": all(part["healthy"] for part in parts.values()),
        "nodes": {name: {"healthy": part["healthy"], "checks": part["checks"]} for name, part in parts.items()},
    }


def _node_check(node: Node) -> Check:
    return Check(
        "node",
        "ok",
        f"contributes {count(node.cpus, 'core')} and {count(node.gpus, 'GPU')} to the cluster",
        WHY,
        required=True,
    )


@contextmanager
def _open(config: DoctorConfig, cores: int) -> Iterator[_NodeChecks]:  # noqa: ARG001
    yield _NodeChecks({"checks": run_doctor(config)})


class _NodeChecks:
    """Implements sweet.cluster.worker.Work: the checks are its `info`, and there are no items."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info

    def results(self, items: Sequence[None]) -> Sequence[None]:
        return items
