"""A node finds its job in the shared folder, and detects when the training is over."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sweet.errors import SweetError, UsageError
from sweet.learn import heartbeat, multinode
from sweet.learn.failure import LOG_PREFIX, error_of, error_path, write_error
from sweet.learn.heartbeat import HEARTBEAT, Heartbeat, HeartbeatReader
from sweet.learn.multinode import RENDEZVOUS, NodeMonitor, Rendezvous, clear, node_heartbeat, run_node, wait_for_job


@pytest.fixture
def rendezvous(tmp_path: Path) -> Rendezvous:
    made = Rendezvous(2, "127.0.0.1", 1234, "cpu", 1, tmp_path / "log")
    made.write(tmp_path)
    return made


@pytest.fixture
def living(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Keeps the heartbeat of a path alive until the end of the test, and shortens the time-outs."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_INTERVAL", 0.05)
    monkeypatch.setattr(multinode, "HEARTBEAT_INTERVAL", 0.4)
    over = threading.Event()
    started: list[threading.Thread] = []

    def beat(heart: Heartbeat) -> None:
        while not over.wait(0.05):
            heart.beat()

    def begin(path: Path) -> None:
        started.append(threading.Thread(target=beat, args=(Heartbeat(path),)))
        started[-1].start()

    yield begin
    over.set()
    for thread in started:
        thread.join()


def test_a_rendezvous_is_read_as_it_was_written(tmp_path: Path, rendezvous: Rendezvous) -> None:
    assert Rendezvous.read(tmp_path) == rendezvous
    assert {"sweet", "python", "torch"} <= rendezvous.versions.keys()
    node_heartbeat(tmp_path, 1).touch()
    (tmp_path / "nodes").touch()
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nodes"]


def test_a_node_with_other_versions_is_refused_and_reported_to_all(tmp_path: Path, rendezvous: Rendezvous) -> None:
    replace(rendezvous, versions=dict(rendezvous.versions) | {"torch": "1.0"}).write(tmp_path)
    with pytest.raises(UsageError, match=r"different versions: torch .* \(node 0: 1\.0\)"):
        run_node(tmp_path, 1, None, tmp_path / "log")
    error = error_of(tmp_path, tmp_path / "log", 1)
    assert isinstance(error, UsageError)
    assert str(error.where).startswith("node 1 (")


def test_an_invalid_rendezvous_is_refused(tmp_path: Path, rendezvous: Rendezvous) -> None:
    for text in ("{", "[]", "{}", '{"log": "x", "shape": 3}'):
        (tmp_path / RENDEZVOUS).write_text(text)
        with pytest.raises(UsageError, match="rendezvous file of node 0 is invalid"):
            Rendezvous.read(tmp_path)


def test_a_node_number_is_used_once(tmp_path: Path, rendezvous: Rendezvous) -> None:
    Heartbeat(node_heartbeat(tmp_path, 1))
    with pytest.raises(UsageError, match="Another node is number 1 already"):
        run_node(tmp_path, 1, None, tmp_path / "log")
    with pytest.raises(UsageError, match="There are 2 nodes"):
        run_node(tmp_path, 2, None, tmp_path / "log")


def test_a_node_without_its_gpus_is_refused(
    tmp_path: Path, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    replace(rendezvous, device="cuda", devices=8).write(tmp_path)
    with pytest.raises(UsageError, match="torch sees 0 GPUs, but 8 are required") as caught:
        run_node(tmp_path, 1, None, tmp_path / "log")
    assert "--gpus-per-node" in str(caught.value.fix)


def test_a_node_that_does_not_see_the_folder_logs_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_NODEID", "1")
    assert multinode.main([str(tmp_path / "none")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(LOG_PREFIX)
    log = tmp_path / "log"
    log.write_text(f"0: something\n1: {said}srun: error\n")
    error = error_of(tmp_path, log, 1)
    assert isinstance(error, UsageError)
    assert "disk is not shared" in error.what


def test_a_launcher_that_dies_is_reported_by_its_node(
    tmp_path: Path, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch, living: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(multinode, "torch_launcher", lambda *_: ["false"])
    living(tmp_path / HEARTBEAT)
    with pytest.raises(SweetError, match=r"launcher of node 1 .* ended with status 1"):
        run_node(tmp_path, 1, None, tmp_path / "log")
    assert error_path(tmp_path, "node-1").exists()
    assert node_heartbeat(tmp_path, 1).read_text() == heartbeat.ENDED


def test_an_error_on_another_node_ends_this_node_s_launcher(
    tmp_path: Path, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multinode, "torch_launcher", lambda *_: ["sleep", "100"])
    monkeypatch.setattr(multinode, "GRACE_PERIOD", 0.2)
    write_error(tmp_path, 0, SweetError("A GPU's memory is full.", fix="a smaller one"))
    started = time.monotonic()
    with pytest.raises(SweetError, match="memory is full") as caught:
        run_node(tmp_path, 1, None, tmp_path / "log")
    assert (caught.value.where, caught.value.fix) == ("rank 0", "a smaller one")
    assert time.monotonic() - started < 30


def test_a_node_that_is_stopped_reports_it_to_the_others(
    tmp_path: Path, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multinode, "torch_launcher", lambda *_: ["sleep", "100"])
    threading.Timer(1.0, signal.raise_signal, (signal.SIGINT,)).start()
    with pytest.raises(KeyboardInterrupt):
        run_node(tmp_path, 1, None, tmp_path / "log")
    assert "was stopped" in error_of(tmp_path, tmp_path / "log", 1).what


def test_the_end_of_the_command_ends_its_nodes(
    tmp_path: Path, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multinode, "torch_launcher", lambda *_: ["sleep", "100"])
    monkeypatch.setattr(multinode, "GRACE_PERIOD", 0.2)
    command = Heartbeat(tmp_path / HEARTBEAT)
    threading.Timer(1.0, command.end).start()
    with pytest.raises(SweetError, match="Node 0 ended before this node"):
        run_node(tmp_path, 1, None, tmp_path / "log")


def test_nodes_that_stop_or_never_join_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Heartbeat(node_heartbeat(tmp_path, 1))
    Heartbeat(node_heartbeat(tmp_path, 2)).end()  # left over from another training
    monitor = NodeMonitor(tmp_path, (1, 3))
    assert not monitor.should_stop()
    monkeypatch.setattr(multinode, "HEARTBEAT_TIMEOUT", 0.3)
    monkeypatch.setattr(multinode, "JOIN_TIMEOUT", 0.6)
    monkeypatch.setattr(multinode, "GRACE_PERIOD", 0.0)
    time.sleep(1)
    monitor.should_stop()
    assert monitor.should_stop()
    words = {who: json.loads(error_path(tmp_path, f"node-{who}").read_text())["what"] for who in (1, 3)}
    assert "is gone: no heartbeat" in words[1]
    assert words[3].startswith("Node 3 has not joined within")


def test_nodes_that_are_alive_are_not_blamed_for_failed_ranks(tmp_path: Path, living: Callable[[Path], None]) -> None:
    write_error(tmp_path, 0, RuntimeError("Connection closed by peer"))
    living(node_heartbeat(tmp_path, 1))
    NodeMonitor(tmp_path, (1,)).report_missing()
    assert "Rank 0 failed: RuntimeError: Connection closed" in error_of(tmp_path, tmp_path / "log", 1).what
    Heartbeat(node_heartbeat(tmp_path, 2))
    NodeMonitor(tmp_path, (1, 2, 3)).report_missing()
    assert not error_path(tmp_path, "node-3").exists()
    assert not error_path(tmp_path, "node-1").exists()
    assert "is gone" in error_of(tmp_path, tmp_path / "log", 1).what


def test_a_stale_heartbeat_is_ignored(tmp_path: Path, rendezvous: Rendezvous, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multinode, "JOIN_TIMEOUT", 2.0)
    folder = tmp_path / "critic-1" / "ranks"
    rendezvous.write(folder)
    stale = Heartbeat(folder / HEARTBEAT)
    with pytest.raises(SweetError, match="No training on several nodes started"):
        wait_for_job(tmp_path, "*/ranks", 2)
    stale.end()
    monkeypatch.setattr(multinode, "JOIN_TIMEOUT", 30.0)
    threading.Timer(0.5, lambda: Heartbeat(folder / HEARTBEAT)).start()
    assert wait_for_job(tmp_path, "*/ranks", 2) == folder
    stale.end()
    threading.Timer(0.5, lambda: Heartbeat(folder / HEARTBEAT)).start()
    with pytest.raises(UsageError, match="Node 0 was started for 2 nodes"):
        wait_for_job(tmp_path, "*/ranks", 3)


def test_an_end_counts_only_after_a_heartbeat(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path / "p")
    heart.end()
    late = HeartbeatReader(tmp_path / "p")
    late.silence()
    assert not late.ended
    Heartbeat(tmp_path / "p")
    late.silence()
    assert late.started
    heart.end()
    late.silence()
    assert late.ended
