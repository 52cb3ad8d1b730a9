"""The scheduler on a stand-in for a cluster: back-pressure, errors, lost workers and nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweet.cluster.scheduler import CHUNKS_PER_WORKER, Scheduler
from sweet.errors import SweetError
from tests.cluster.conftest import NODES
from tests.cluster.stand_in import StandInCluster, install
from tests.cluster.work import deadly, doubling, first_only, nowhere

pytestmark = pytest.mark.quick
messages: list[str] = []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StandInCluster:
    install(monkeypatch)
    messages.clear()
    return StandInCluster(NODES)


@pytest.fixture
def scheduler_on(cluster: Any) -> Any:
    """A function that opens work on the nodes."""
    return partial(Scheduler, cluster, say=messages.append)


def wait_until(what: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)


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


def test_items_that_take_down_several_workers_end_the_work(scheduler_on: Any, tmp_path: Path) -> None:
    before: list[int] = []
    with (
        scheduler_on(partial(deadly, tmp_path, 99, 55, True)) as scheduler,
        pytest.raises(SweetError, match="3 workers were lost over the same 5 items") as caught,
    ):
        before.extend(scheduler.results(range(200), 5))
    assert len(list(tmp_path.iterdir())) == 3
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


def test_a_node_that_joins_later_is_used(
    cluster: StandInCluster, scheduler_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.REFRESH_SECONDS", 0.05)
    with scheduler_on(partial(doubling, 0.0)) as scheduler:
        list(scheduler.results(range(10), 2))
        cluster.add()
        wait_until(lambda: len(scheduler.node_info) > NODES)


@pytest.mark.parametrize("moment", [0.0, 0.1])
def test_no_result_is_lost_or_doubled_when_a_node_is_lost(
    cluster: StandInCluster, scheduler_on: Any, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.REFRESH_SECONDS", 0.05)
    with scheduler_on(partial(doubling, 0.002)) as scheduler:
        results = scheduler.results(range(600), 5)
        found = [next(results) for _ in range(10)]
        timer = threading.Timer(moment, cluster.lose, (1,))
        timer.start()
        found += results
        timer.join()
        wait_until(lambda: bool(messages))
    assert found == [2 * item for item in range(600)]
    assert sum(scheduler.done.values()) == 600
    assert messages == ["Excluded node 1: the node is gone"]


def test_closing_early_leaves_nothing_running(scheduler_on: Any) -> None:
    with scheduler_on(partial(doubling, 60.0)) as scheduler:
        began = time.monotonic()
        future = scheduler.submit([1])
    with pytest.raises(SweetError, match="was ended"):
        future.result()
    assert time.monotonic() - began < 60, "the item would take as long"


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
