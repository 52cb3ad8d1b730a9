"""`sweet doctor --ray`: every node of a Ray cluster runs the checks of `sweet doctor` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sweet.cluster.nodes import open_cluster
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
        checks: dict[str, list[Check]] = {}
        for node in cluster.nodes():
            found = f"contributes {count(node.cpus, 'core')} and {count(node.gpus, 'GPU')} to the cluster"
            if node.name in scheduler.node_info:
                own = Check("node", "ok", found, WHY, required=True)
                checks[node.name] = [own, *scheduler.node_info[node.name]["checks"]]
        fix = "install the same version of sweet on that node"
        for name, why in scheduler.excluded.items():
            checks[name] = [Check("node", "problem", why, WHY, fix, required=True)]
        return dict(sorted(checks.items()))


def nodes_as_json(nodes: dict[str, list[Check]]) -> dict[str, Any]:
    parts = {name: as_json(checks) for name, checks in nodes.items()}
    return {
        "stage": "doctor",
        "healthy": all(part["healthy"] for part in parts.values()),
        "nodes": {name: {"healthy": part["healthy"], "checks": part["checks"]} for name, part in parts.items()},
    }


@contextmanager
def _open(config: DoctorConfig, cores: int) -> Iterator[_NodeChecks]:  # noqa: ARG001
    yield _NodeChecks({"checks": run_doctor(config)})


class _NodeChecks:
    """Implements sweet.cluster.worker.Work: the checks are its `info`, and there are no items."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info

    def results(self, items: Sequence[None]) -> Sequence[None]:
        return items
