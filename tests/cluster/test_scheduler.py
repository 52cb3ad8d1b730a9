"""Work on three real nodes: order, back-pressure, and what becomes of it when benches and nodes are lost."""

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

from sweet.cluster.nodes import open_cluster
from sweet.cluster.scheduler import AT_ONCE, Spread
from sweet.cluster.worker import AsyncBench
from sweet.errors import ServerError, SweetError
from tests.cluster.work import deadly, doubling, first_only, nowhere, odd_only, on_gpu, where

said: list[str] = []
told: list[str] = []
"""What was said of how far it is, apart from the rest."""


def hear(line: str) -> None:
    (told if line.startswith("Done by node: ") else said).append(line)


@pytest.fixture
def spread_on(nodes: Any) -> Iterator[Any]:
    """Opens work on the nodes."""
    said.clear()
    told.clear()
    with open_cluster(nodes.address) as cluster:
        yield lambda opening, **more: Spread(cluster, opening, say=hear, **more)


def test_results_come_in_order_and_every_node_has_a_part_in_them(spread_on: Any) -> None:
    with spread_on(partial(doubling, 0.002)) as spread:
        assert list(spread.results(range(500), 7)) == [2 * item for item in range(500)]
        assert len(spread.done) == 3
        assert sum(spread.done.values()) == 500
        assert [told["cores"] for told in spread.told.values()] == [1, 1, 1]
        assert list(spread.results([], 7)) == []
        assert list(spread.results(range(3), 7)) == [0, 2, 4]
    assert said == []


def test_what_each_node_has_done_is_told_now_and_then_and_at_the_end(
    spread_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.TELL_SECONDS", 0.2)
    with spread_on(partial(doubling, 0.004)) as spread:
        list(spread.results(range(600), 5))
    sums = [sum(int(part.split()[-1]) for part in line.removeprefix("Done by node: ").split(", ")) for line in told]
    assert sums == sorted(set(sums))
    assert sums[-1] == 600
    assert len(sums) > 2
    assert all(name in told[-1] for name in spread.told)


def test_items_with_much_in_common_go_to_the_same_bench(spread_on: Any) -> None:
    with spread_on(partial(where, 0.002)) as spread:
        did = list(spread.results(range(1500), 5, lambda item: f"task {item % 50}"))
    benches_of = [len({did[item] for item in range(task, 1500, 50)}) for task in range(50)]
    assert len(set(did)) == 3
    assert sum(benches_of) < 110  # 50 would be all; by chance 150


def test_each_gpu_has_a_bench_for_itself(nodes: Any, spread_on: Any) -> None:
    more = nodes.add_node(num_cpus=4, num_gpus=2)  # as Ray counts them: nothing looks for devices
    nodes.wait_for_nodes()
    try:
        with spread_on(on_gpu, gpus=True) as spread:
            assert spread.benches == 2
            assert set(spread.results(range(100), 5)) == {("0", 2), ("1", 2)}
            [told] = spread.record().values()
            assert told == {"items": 100, "cores": 4}
    finally:
        nodes.remove_node(more)


def test_a_bench_does_not_wait_for_items_of_its_own(spread_on: Any) -> None:
    with spread_on(partial(where, 0.002)) as spread:
        did = list(spread.results(range(600), 5, lambda _: "the only task"))
    assert min(did.count(process) for process in set(did)) > 100
    assert len(set(did)) == 3


def test_no_more_is_taken_than_is_under_way(spread_on: Any) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(2000):
            taken.append(item)
            yield item

    with spread_on(partial(doubling, 0.0)) as spread:
        for number, _ in enumerate(spread.results(items(), 10)):
            assert len(taken) <= number + ((AT_ONCE + 2) * 3 + 1) * 10


def test_chunks_are_submitted_from_any_thread(spread_on: Any) -> None:
    with spread_on(partial(doubling, 0.001)) as spread:
        found: dict[int, list[int]] = {}
        threads = [
            threading.Thread(target=lambda n=n: found.update({n: spread.submit([n, n + 1]).result()}))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {n: [2 * n, 2 * n + 2] for n in range(20)}


def test_a_bench_that_dies_is_replaced_and_its_items_are_counted_once(spread_on: Any, tmp_path: Path) -> None:
    with spread_on(partial(deadly, tmp_path, 2, 55, False)) as spread:
        assert list(spread.results(range(200), 5)) == [2 * item for item in range(200)]
    assert len(list(tmp_path.iterdir())) == 2
    assert sum(spread.done.values()) == 200


@pytest.mark.parametrize("raises", [True, False])
def test_items_that_take_one_bench_after_the_other_down_end_the_work(
    spread_on: Any, tmp_path: Path, raises: bool
) -> None:
    before: list[int] = []
    with (
        spread_on(partial(deadly, tmp_path, 99, 55, raises)) as spread,
        pytest.raises(SweetError, match="3 workers were lost over the same 5 items") as caught,
    ):
        before.extend(spread.results(range(200), 5))
    assert len(list(tmp_path.iterdir())) == 3
    if raises:
        assert "The jail does not stay alive" in caught.value.what
        assert caught.value.fix == "sweet doctor"


def test_a_node_that_cannot_do_the_work_is_left_out_by_name(spread_on: Any, tmp_path: Path) -> None:
    with spread_on(partial(first_only, tmp_path / "mark")) as spread:
        assert list(spread.results(range(40), 3)) == [2 * item for item in range(40)]
        [name] = spread.told
    assert len(said) == 2
    assert all("One is enough." in line and name not in line for line in said)


def test_where_no_node_can_every_reason_is_told(spread_on: Any) -> None:
    with pytest.raises(SweetError, match="No node of the cluster") as caught, spread_on(nowhere):
        pass
    assert caught.value.what.count("There is no sandbox for 1 cores.") == 3
    assert "apt-get install bubblewrap" in caught.value.what


def test_a_bench_that_is_not_accepted_has_no_part_in_it(spread_on: Any) -> None:
    seen: list[str] = []

    def accept(name: str, told: Any) -> str | None:
        assert told["cores"] == 1
        seen.append(name)
        return "it is not the first" if len(seen) > 1 else None

    with spread_on(partial(doubling, 0.0), accept=accept) as spread:
        assert list(spread.results(range(10), 2)) == [2 * item for item in range(10)]
    assert list(spread.done) == seen[:1]
    assert len(said) == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_node_lost_half_way_costs_nothing_but_time(
    nodes: Any, spread_on: Any, seed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.LOOK_SECONDS", 0.5)
    rng = random.Random(seed)
    extra = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    moment = rng.uniform(0.05, 0.5)
    with spread_on(partial(doubling, 0.002)) as spread:
        assert len(spread.told) == 4
        results = spread.results(range(900), 5)
        found = [next(results) for _ in range(10)]
        timer = threading.Timer(moment, nodes.remove_node, (extra,), {"allow_graceful": False})
        timer.start()
        found += results
        timer.join()
        deadline = time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            time.sleep(0.1)
    assert found == [2 * item for item in range(900)]
    assert sum(spread.done.values()) == 900
    assert len(said) == 1
    assert "it is gone" in said[0]
    assert capfd.readouterr().out == "", "stdout is for data"


def test_a_node_that_joins_is_taken_in(nodes: Any, spread_on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.cluster.scheduler.LOOK_SECONDS", 0.2)
    with spread_on(partial(doubling, 0.0)) as spread:
        list(spread.results(range(10), 2))
        extra = nodes.add_node(num_cpus=1)
        try:
            nodes.wait_for_nodes()
            deadline = time.monotonic() + 60
            while len(spread.told) < 4 and time.monotonic() < deadline:
                time.sleep(0.2)
            assert len(spread.told) == 4
        finally:
            nodes.remove_node(extra)


def test_an_end_before_the_end_leaves_nothing_running(spread_on: Any) -> None:
    with spread_on(partial(doubling, 5.0)) as spread:
        began = time.monotonic()
        future = spread.submit([1])
    with pytest.raises(SweetError, match="was ended"):
        future.result()
    assert time.monotonic() - began < 5


def test_an_address_where_nobody_is(nodes: Any) -> None:
    assert nodes.address
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ServerError, match="No Ray cluster") as caught, open_cluster("127.0.0.1:9"):
        pass
    assert caught.value.where == "--ray 127.0.0.1:9"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_what_is_given_up_by_who_wanted_it_harms_nobody(spread_on: Any) -> None:
    with spread_on(partial(doubling, 0.01), at_once=1) as spread:
        futures = [spread.submit([n]) for n in range(30)]
        assert any(future.cancel() for future in futures[10:20])
        assert futures[29].result() == [58]
        assert [future.result() for future in futures[:10]] == [[2 * n] for n in range(10)]


def test_when_the_work_ends_in_an_error_everybody_hears_of_it(spread_on: Any, tmp_path: Path) -> None:
    with spread_on(partial(deadly, tmp_path, 99, 5, True)) as spread:
        futures = [spread.submit([n]) for n in range(40)]
        errors = [future.exception(timeout=60) for future in futures]
        assert all(error is None or "workers were lost" in str(error) for error in errors)
        assert isinstance(errors[5], SweetError)
        with pytest.raises(SweetError, match="workers were lost"):
            spread.submit([1]).result(timeout=60)


def test_an_error_about_one_item_concerns_nobody_else(spread_on: Any) -> None:
    with spread_on(odd_only, bench=AsyncBench, at_once=8) as spread:
        futures = [spread.submit([n]) for n in range(20)]
        for number, future in enumerate(futures):
            if number % 2:
                assert future.result() == [2 * number]
            else:
                with pytest.raises(SweetError, match=f"{number} is even") as caught:
                    future.result()
                assert caught.value.fix == "another number"
        assert sum(spread.done.values()) == 10
    assert said == []


def test_a_machine_that_belongs_to_no_cluster(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(ServerError, match="belongs to none") as caught, open_cluster("auto"):
        pass
    assert caught.value.fix == "ray start --head, or --ray local"
