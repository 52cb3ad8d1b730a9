"""`sweet doctor --ray`: the same look at every node of a Ray cluster, by the node itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sweet.cluster.nodes import Node, open_cluster
from sweet.cluster.scheduler import Scheduler
from sweet.inspection.doctor import Check, DoctorConfig, as_json, run_doctor

WHY = "a part in what is done with --ray"


def run_cluster_doctor(address: str, config: DoctorConfig, say: Callable[[str], None]) -> dict[str, list[Check]]:
    """The checks of every node, by its name. A node that cannot look, as for want of this version of sweet, has one
    check that says why.

    Raises:
        ServerError: there is no cluster.
        SweetError: no node can look.
    """
    with (
        open_cluster(address) as cluster,
        Scheduler[None, None](cluster, partial(_look, config), light=True, say=say) as spread,
    ):
        nodes = {node.name: node for node in cluster.nodes()}
        found = {
            name: [_given(nodes[name]), *info["checks"]] for name, info in spread.node_info.items() if name in nodes
        }
        for name, why in spread.excluded.items():
            found[name] = [
                Check("node", "problem", why, WHY, "install the same version of sweet on that node", required=True)
            ]
        return dict(sorted(found.items()))


def nodes_as_json(nodes: dict[str, list[Check]]) -> dict[str, Any]:
    parts = {name: as_json(checks) for name, checks in nodes.items()}
    return {
        "stage": "doctor",
        "healthy": all(part["healthy"] for part in parts.values()),
        "nodes": {name: {"healthy": part["healthy"], "checks": part["checks"]} for name, part in parts.items()},
    }


def _given(node: Node) -> Check:
    return Check("node", "ok", f"gives {node.cpus} cores and {node.gpus} GPUs to the cluster", WHY, required=True)


@contextmanager
def _look(config: DoctorConfig, cores: int) -> Iterator[_Looked]:  # noqa: ARG001
    yield _Looked({"checks": run_doctor(config)})


class _Looked:
    """Implements sweet.cluster.worker.Work: the checks are its `info`, and there are no items."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info

    def results(self, items: Iterable[None]) -> Iterator[None]:
        yield from items
