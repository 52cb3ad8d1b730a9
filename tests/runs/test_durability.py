"""What is recorded as done survives a loss of power: content is flushed before its name appears, and rows and artifacts
before the manifest names them."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from sweet.runs import jsonl
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from tests.disk_log import Event, recorded
from tests.runs.conftest import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the log of events reads /proc")

MANIFEST: list[Event] = [
    *(("fsync", "TEMPORARY"), ("replace", "manifest.json"), ("fsync", ".")),
    *(("fsync", "TEMPORARY"), ("replace", "manifest.json.bak"), ("fsync", ".")),
]
"""One change of the manifest: content, name and folder of the manifest, and only then of its copy."""


def test_a_writer_flushes_its_rows_when_it_is_asked_to_and_when_it_is_closed(tmp_path: Path) -> None:
    with recorded(tmp_path) as log, JsonlWriter(tmp_path / "rows.jsonl") as writer:
        writer.write({"id": 1})
        writer.sync()
        writer.write({"id": 2})
    written, flushed = ("write", "rows.jsonl"), ("fsync", "rows.jsonl")
    assert log == [written, flushed, written, flushed]


def test_rows_reach_the_disk_within_seconds_and_not_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "FLUSH_SECONDS", 0.05)
    with recorded(tmp_path) as log, JsonlWriter(tmp_path / "rows.jsonl", sums=True) as writer:
        for number in range(10):
            writer.write({"id": number})
        while ("fdatasync", "rows.jsonl") not in log:
            time.sleep(0.01)
    note, row, flush = ("write", "TEMPORARY"), ("write", "rows.jsonl"), "fdatasync"
    assert log[:20] == [note, row] * 10, "the sum of a row is noted before the row"
    assert log[20:22] == [(flush, "TEMPORARY"), (flush, "rows.jsonl")], "and is on the disk before it"


def test_rows_that_could_not_be_flushed_end_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def broken(file: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(jsonl, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(os, "fdatasync", broken)
    with JsonlWriter(tmp_path / "rows.jsonl") as writer:
        writer.write({"id": 1})
        assert failed.wait(10)

        def write_on() -> None:
            while True:
                writer.write({"id": 2})

        with pytest.raises(OSError, match="Input/output"):
            write_on()


def test_a_writer_that_is_left_by_an_error_flushes_its_rows(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with JsonlWriter(tmp_path / "rows.jsonl") as writer:
            writer.write({"id": 1})
            raise RuntimeError

    with recorded(tmp_path) as log, pytest.raises(RuntimeError):
        write_and_fail()
    assert log == [("write", "rows.jsonl"), ("fsync", "rows.jsonl")]


def test_a_change_of_the_manifest_reaches_the_disk_in_order(run: Run) -> None:
    with recorded(run.path) as log, run.attempt("label", Settings()):
        log.clear()  # the attempt has begun
    assert [event for event in log if event[0] != "write"] == MANIFEST


def test_a_run_s_first_manifest_is_on_the_disk(tmp_path: Path) -> None:
    with recorded(tmp_path / "run") as log:
        Run.create(tmp_path / "run", "code")
    assert [event for event in log if event[0] != "write"] == MANIFEST


def test_an_attempt_is_on_the_disk_before_its_work_begins(run: Run) -> None:
    with recorded(run.path) as log, run.attempt("label", Settings()) as attempt:
        assert [event for event in log if event[0] != "write"] == MANIFEST
        log.clear()
        attempt.start_artifact("preferences")
        assert log == MANIFEST


def test_a_file_is_on_the_disk_before_the_manifest_says_that_it_is_done(run: Run) -> None:
    with run.attempt("label", Settings()) as attempt:
        draft = attempt.start_artifact("preferences")
        draft.path.write_text("{}\n")
        with recorded(run.path) as log:
            attempt.finish_artifact(draft, rows=1)
    assert log[: 2 + len(MANIFEST)] == [
        ("fsync", "preferences/preferences-1.jsonl"),
        ("fsync", "preferences"),
        *MANIFEST,
    ]


def test_all_files_and_folders_of_a_model_are_on_the_disk_before_the_manifest_says_that_it_is_done(run: Run) -> None:
    with run.attempt("train-critic", Settings()) as attempt:
        draft = attempt.start_artifact("critic", suffix="")
        (draft.path / "adapter").mkdir()
        (draft.path / "weights").write_bytes(b"1")
        (draft.path / "adapter" / "weights").write_bytes(b"2")
        with recorded(run.path) as log:
            attempt.finish_artifact(draft)
    flushed = log[: log.index(MANIFEST[0])]
    assert {event for event, _ in flushed} == {"fsync"}
    made = {"critic/critic-1/weights", "critic/critic-1/adapter/weights", "critic/critic-1/adapter", "critic/critic-1"}
    assert {path for _, path in flushed} == {*made, "critic"}
    assert log[len(flushed) :][: len(MANIFEST)] == MANIFEST


def test_a_checkpoint_is_on_the_disk_before_it_replaces_the_former_one(tmp_path: Path) -> None:
    from sweet.learn.engine import save_atomically

    with recorded(tmp_path) as log:
        save_atomically({"step": 1}, tmp_path / "checkpoint.pt")
    assert [event for event in log if event[0] != "write"] == [("fsync", "TEMPORARY"), ("replace", "checkpoint.pt")]
