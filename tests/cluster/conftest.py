"""A real Ray cluster of three nodes on this machine."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from sweet.cluster.nodes import import_ray


@pytest.fixture(scope="package")  # other tests count the child processes of their own
def nodes() -> Iterator[Any]:
    """Ray's own cluster for tests: a head and two more nodes with one CPU each."""
    with contextlib.suppress(ImportError):
        import_ray()
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        # Ray otherwise takes 20 seconds to notice that a node is gone.
        checks = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 300}
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": checks}
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
