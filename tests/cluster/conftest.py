"""A real Ray cluster of `NODES` nodes on this machine.

Ray starts two interpreters for each worker, a worker on each node for each test, and two agents on each node. Those of
this cluster are forked (`tests.interpreter`); the clusters of `test_private` and `test_token` are started as users
start theirs.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from sweet.cluster.nodes import import_ray
from tests import programs

NODES = 2
"""Each with one CPU. Further ones are added by the tests that need them."""
UNUSED = {"no_monitor": True, "include_log_monitor": False}
"""Leaves out two of the head's programs: what adds nodes and what shows logs."""
LIFE = "RAY_enable_pipe_based_agent_to_parent_health_check"
"""Variable with which a node's agents end when their standard input is closed. Otherwise they end when their parent is
not the node, and the parent of forked ones never is."""


@pytest.fixture(scope="package")  # other tests count the child processes of their own
def nodes() -> Iterator[Any]:
    """Ray's own cluster for tests: a head and other nodes with one CPU each."""
    with contextlib.suppress(ImportError):
        import_ray()
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", programs.interpreter())
        patch.setenv(LIFE, "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            # Ray otherwise takes 20 seconds to notice that a node is gone.
            checks = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 300}
            head = {"num_cpus": 1, "include_dashboard": False, "_system_config": checks} | UNUSED
            cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
            for _ in range(NODES - 1):
                cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
        yield cluster
        cluster.shutdown()
