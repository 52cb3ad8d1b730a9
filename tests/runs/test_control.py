"""The file of requests to an attempt: numbered, read once each, and nothing else in its place is obeyed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweet.runs.control import KEPT, LARGEST, Request, Requests, request
from sweet.runs.run import Run
from sweet.runs.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Run.create(tmp_path / "run").path)


@pytest.fixture
def path(store: Store) -> Path:
    return store.root / "logs" / "rollout-1.control.json"


def test_each_request_is_read_once_in_its_order(store: Store, path: Path) -> None:
    requests = Requests(path)
    assert requests.new() == []
    assert request(store, path, "pause", "", after=0) == 1
    assert request(store, path, "concurrency", "7", after=0) == 2
    assert [(one.action, one.value) for one in requests.new()] == [("pause", ""), ("concurrency", "7")]
    assert requests.new() == []
    assert request(store, path, "resume", "", after=0) == 3
    assert [one.action for one in requests.new()] == ["resume"]


def test_old_requests_are_dropped_and_numbers_go_on(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.runs.control.KEPT", 4)
    requests = Requests(path)
    for _ in range(9):
        request(store, path, "concurrency", "a", after=0)
    assert [one.number for one in requests.new()] == [6, 7, 8, 9]
    path.unlink()
    assert request(store, path, "resume", "", after=9) == 10
    assert [one.action for one in requests.new()] == ["resume"], "also after the file was lost"


def test_as_many_requests_as_are_kept_can_be_read(store: Store, path: Path) -> None:
    path.parent.mkdir()
    requests = [Request(number=n, action="concurrency", value="\U0001f600" * 1000) for n in range(1, KEPT + 1)]
    path.write_text('{"requests": [' + ",".join(one.model_dump_json() for one in requests) + "]}")
    assert path.stat().st_size < LARGEST
    assert len(Requests(path).new()) == KEPT


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"requests": [{"number": 0, "action": "pause"}]}',
        b'{"requests": [{"number": 1, "action": "delete"}]}',
        b'{"requests": [{"number": 1, "action": "concurrency", "value": "' + b"x" * 1001 + b'"}]}',
        b" " * (LARGEST + 1),
    ],
)
def test_what_is_no_request_is_not_obeyed(store: Store, path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert Requests(path).new() == []
    assert request(store, path, "pause", "", after=0) == 1


def test_a_pipe_and_a_link_are_not_read(store: Store, path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    assert Requests(path).new() == []
    path.unlink()
    elsewhere = store.root.parent / "elsewhere.json"
    elsewhere.write_text('{"requests": [{"number": 1, "action": "pause"}]}')
    path.symlink_to(elsewhere)
    assert Requests(path).new() == []
