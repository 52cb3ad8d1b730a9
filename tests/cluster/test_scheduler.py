"""The scheduler on real nodes: order, GPUs, and lost workers and nodes. `test_scheduling` has the other cases."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweet.cluster.nodes import Cluster, open_cluster
from sweet.cluster.scheduler import Scheduler
from sweet.errors import ServerError
from tests.cluster.conftest import NODES
from tests.cluster.work import deadly, doubling, on_gpu

messages: list[str] = []


@pytest.fixture(scope="module")
def joined(nodes: Any) -> Iterator[Cluster]:
    """The cluster, which this process has joined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES")  # Ray compares its number of GPUs
        with open_cluster(nodes.address) as cluster:
            yield cluster


@pytest.fixture
def scheduler_on(joined: Cluster) -> Any:
    """A function that opens work on the nodes."""
    messages.clear()
    return partial(Scheduler, joined, say=messages.append)


def test_results_come_in_order_and_every_node_contributes(scheduler_on: Any) -> None:
    with scheduler_on(partial(doubling, 0.002)) as scheduler:
        assert list(scheduler.results(range(500), 7)) == [2 * item for item in range(500)]
        assert len(scheduler.done) == NODES
        assert sum(scheduler.done.values()) == 500
        assert [info["cores"] for info in scheduler.node_info.values()] == [1] * NODES
        assert list(scheduler.results([], 7)) == []
        assert list(scheduler.results(range(3), 7)) == [0, 2, 4]
    assert messages == []


def test_each_gpu_has_a_worker_to_itself(nodes: Any, scheduler_on: Any) -> None:
    more = nodes.add_node(num_cpus=4, num_gpus=2)  # as Ray counts them: nothing checks for devices
    nodes.wait_for_nodes()
    try:
        with scheduler_on(on_gpu, gpus=True) as scheduler:
            assert scheduler.worker_count == 2
            assert set(scheduler.results(range(100), 5)) == {("0", 2), ("1", 2)}
            [node] = scheduler.record().values()
            assert node == {"items": 100, "cores": 4}
    finally:
        nodes.remove_node(more)


def test_a_worker_that_dies_is_replaced_and_its_items_are_counted_once(scheduler_on: Any, tmp_path: Path) -> None:
    with scheduler_on(partial(deadly, tmp_path, 2, 55, False)) as scheduler:
        assert list(scheduler.results(range(200), 5)) == [2 * item for item in range(200)]
    assert len(list(tmp_path.iterdir())) == 2
    assert sum(scheduler.done.values()) == 200


@pytest.mark.parametrize("seed", range(2))
def test_no_result_is_lost_or_doubled_when_a_node_is_lost(
    nodes: Any, scheduler_on: Any, seed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.REFRESH_SECONDS", 0.5)
    rng = random.Random(seed)
    extra = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    moment = rng.uniform(0.05, 0.5)
    with scheduler_on(partial(doubling, 0.002)) as scheduler:
        assert len(scheduler.node_info) == NODES + 1
        results = scheduler.results(range(900), 5)
        found = [next(results) for _ in range(10)]
        timer = threading.Timer(moment, nodes.remove_node, (extra,), {"allow_graceful": False})
        timer.start()
        found += results
        timer.join()
        deadline = time.monotonic() + 60
        while not messages and time.monotonic() < deadline:
            time.sleep(0.1)
    assert found == [2 * item for item in range(900)]
    assert sum(scheduler.done.values()) == 900
    assert len(messages) == 1
    assert "the node is gone" in messages[0]
    assert capfd.readouterr().out == "", "stdout is for data"


def test_an_address_without_a_cluster_is_refused(nodes: Any) -> None:
    assert nodes.address
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ServerError, match="No Ray cluster") as caught, open_cluster("127.0.0.1:9"):
        pass
    assert caught.value.where == "--ray 127.0.0.1:9"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_auto_on_a_machine_that_belongs_to_no_cluster(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ServerError, match="belongs to none") as caught, open_cluster("auto"):
        pass
    assert caught.value.fix == "ray start --head"
