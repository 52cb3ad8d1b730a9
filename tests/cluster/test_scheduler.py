"""The scheduler on real nodes: order, back-pressure, and lost workers and nodes."""

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
from sweet.cluster.scheduler import CHUNKS_PER_WORKER, Scheduler
from sweet.cluster.worker import AsyncWorker
from sweet.errors import ServerError, SweetError
from tests.cluster.conftest import NODES
from tests.cluster.work import deadly, doubling, first_only, nowhere, odd_only, on_gpu, where

messages: list[str] = []
progress: list[str] = []
"""Progress reports; all other lines are in `messages`."""


def record(line: str) -> None:
    (progress if line.startswith("Done by node: ") else messages).append(line)


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
    progress.clear()
    return partial(Scheduler, joined, say=record)


def test_results_come_in_order_and_every_node_contributes(scheduler_on: Any) -> None:
    with scheduler_on(partial(doubling, 0.002)) as scheduler:
        assert list(scheduler.results(range(500), 7)) == [2 * item for item in range(500)]
        assert len(scheduler.done) == NODES
        assert sum(scheduler.done.values()) == 500
        assert [info["cores"] for info in scheduler.node_info.values()] == [1] * NODES
        assert list(scheduler.results([], 7)) == []
        assert list(scheduler.results(range(3), 7)) == [0, 2, 4]
    assert messages == []


def test_progress_by_node_is_reported_periodically_and_at_the_end(
    scheduler_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.REPORT_SECONDS", 0.2)
    with scheduler_on(partial(doubling, 0.004)) as scheduler:
        list(scheduler.results(range(600), 5))
    sums = [sum(int(part.split()[-1]) for part in line.removeprefix("Done by node: ").split(", ")) for line in progress]
    assert sums == sorted(set(sums))
    assert sums[-1] == 600
    assert len(sums) > 2
    assert all(name in progress[-1] for name in scheduler.node_info)


def test_items_of_one_affinity_go_to_the_same_worker(scheduler_on: Any) -> None:
    with scheduler_on(partial(where, 0.002)) as scheduler:
        did = list(scheduler.results(range(1500), 5, lambda item: f"task {item % 50}"))
    workers_per_task = [len({did[item] for item in range(task, 1500, 50)}) for task in range(50)]
    assert len(set(did)) == NODES
    assert sum(workers_per_task) < 50 + 30 * (NODES - 1)  # 50 is the minimum; 50 for each node would be chance


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


def test_an_idle_worker_takes_items_of_another_lane(scheduler_on: Any) -> None:
    with scheduler_on(partial(where, 0.002)) as scheduler:
        did = list(scheduler.results(range(600), 5, lambda _: "the only task"))
    assert min(did.count(process) for process in set(did)) > 100
    assert len(set(did)) == NODES


def test_no_more_items_are_read_than_are_in_flight(scheduler_on: Any) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(2000):
            taken.append(item)
            yield item

    with scheduler_on(partial(doubling, 0.0)) as scheduler:
        for number, _ in enumerate(scheduler.results(items(), 10)):
            assert len(taken) <= number + ((CHUNKS_PER_WORKER + 2) * NODES + 1) * 10


def test_chunks_are_submitted_from_any_thread(scheduler_on: Any) -> None:
    with scheduler_on(partial(doubling, 0.001)) as scheduler:
        found: dict[int, list[int]] = {}
        threads = [
            threading.Thread(target=lambda n=n: found.update({n: scheduler.submit([n, n + 1]).result()}))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {n: [2 * n, 2 * n + 2] for n in range(20)}


def test_a_worker_that_dies_is_replaced_and_its_items_are_counted_once(scheduler_on: Any, tmp_path: Path) -> None:
    with scheduler_on(partial(deadly, tmp_path, 2, 55, False)) as scheduler:
        assert list(scheduler.results(range(200), 5)) == [2 * item for item in range(200)]
    assert len(list(tmp_path.iterdir())) == 2
    assert sum(scheduler.done.values()) == 200


@pytest.mark.parametrize("raises", [True, False])
def test_items_that_take_down_several_workers_end_the_work(scheduler_on: Any, tmp_path: Path, raises: bool) -> None:
    before: list[int] = []
    with (
        scheduler_on(partial(deadly, tmp_path, 99, 55, raises)) as scheduler,
        pytest.raises(SweetError, match="3 workers were lost over the same 5 items") as caught,
    ):
        before.extend(scheduler.results(range(200), 5))
    assert len(list(tmp_path.iterdir())) == 3
    if raises:
        assert "The jail does not stay alive" in caught.value.what
        assert caught.value.fix == "sweet doctor"


def test_a_node_that_cannot_open_the_work_is_excluded_by_name(scheduler_on: Any, tmp_path: Path) -> None:
    with scheduler_on(partial(first_only, tmp_path / "mark")) as scheduler:
        assert list(scheduler.results(range(40), 3)) == [2 * item for item in range(40)]
        [name] = scheduler.node_info
    assert len(messages) == NODES - 1
    assert all("One is enough." in line and name not in line for line in messages)


def test_if_no_node_can_do_the_work_every_reason_is_reported(scheduler_on: Any) -> None:
    with pytest.raises(SweetError, match="No node of the cluster") as caught, scheduler_on(nowhere):
        pass
    assert caught.value.what.count("There is no sandbox for 1 cores.") == NODES
    assert "apt-get install bubblewrap" in caught.value.what


def test_a_worker_that_is_not_accepted_gets_no_items(scheduler_on: Any) -> None:
    seen: list[str] = []

    def accept(name: str, info: Any) -> str | None:
        assert info["cores"] == 1
        seen.append(name)
        return "it is not the first" if len(seen) > 1 else None

    with scheduler_on(partial(doubling, 0.0), accept=accept) as scheduler:
        assert list(scheduler.results(range(10), 2)) == [2 * item for item in range(10)]
    assert list(scheduler.done) == seen[:1]
    assert len(messages) == NODES - 1


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


def test_a_node_that_joins_later_is_used(nodes: Any, scheduler_on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.REFRESH_SECONDS", 0.2)
    with scheduler_on(partial(doubling, 0.0)) as scheduler:
        list(scheduler.results(range(10), 2))
        extra = nodes.add_node(num_cpus=1)
        try:
            nodes.wait_for_nodes()
            deadline = time.monotonic() + 60
            while len(scheduler.node_info) <= NODES and time.monotonic() < deadline:
                time.sleep(0.2)
            assert len(scheduler.node_info) == NODES + 1
        finally:
            nodes.remove_node(extra)


def test_closing_early_leaves_nothing_running(scheduler_on: Any) -> None:
    with scheduler_on(partial(doubling, 60.0)) as scheduler:
        began = time.monotonic()
        future = scheduler.submit([1])
    with pytest.raises(SweetError, match="was ended"):
        future.result()
    assert time.monotonic() - began < 60, "the item would take as long"


def test_an_address_without_a_cluster_is_refused(nodes: Any) -> None:
    assert nodes.address
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ServerError, match="No Ray cluster") as caught, open_cluster("127.0.0.1:9"):
        pass
    assert caught.value.where == "--ray 127.0.0.1:9"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_cancelled_chunk_does_not_affect_others(scheduler_on: Any) -> None:
    with scheduler_on(partial(doubling, 0.01), chunks_per_worker=1) as scheduler:
        futures = [scheduler.submit([n]) for n in range(30)]
        assert any(future.cancel() for future in futures[10:20])
        assert futures[29].result() == [58]
        assert [future.result() for future in futures[:10]] == [[2 * n] for n in range(10)]


def test_an_error_that_ends_the_work_reaches_all_chunks(scheduler_on: Any, tmp_path: Path) -> None:
    with scheduler_on(partial(deadly, tmp_path, 99, 5, True)) as scheduler:
        futures = [scheduler.submit([n]) for n in range(40)]
        errors = [future.exception(timeout=60) for future in futures]
        assert all(error is None or "workers were lost" in str(error) for error in errors)
        assert isinstance(errors[5], SweetError)
        with pytest.raises(SweetError, match="workers were lost"):
            scheduler.submit([1]).result(timeout=60)


def test_an_error_about_one_item_does_not_affect_others(scheduler_on: Any) -> None:
    with scheduler_on(odd_only, worker=AsyncWorker, chunks_per_worker=8) as scheduler:
        futures = [scheduler.submit([n]) for n in range(20)]
        for number, future in enumerate(futures):
            if number % 2:
                assert future.result() == [2 * number]
            else:
                with pytest.raises(SweetError, match=f"{number} is even") as caught:
                    future.result()
                assert caught.value.fix == "another number"
        assert sum(scheduler.done.values()) == 10
    assert messages == []


def test_auto_on_a_machine_that_belongs_to_no_cluster(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ServerError, match="belongs to none") as caught, open_cluster("auto"):
        pass
    assert caught.value.fix == "ray start --head"
