"""Filters and order, bookmarks, and the export of a selection."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.datasets.exporting import DataExportConfig, export_lines
from sweet.datasets.published import read_trajectories
from sweet.errors import InputError, UsageError
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.trajectory import dump
from sweet.view.bookmarks import Bookmarks, export
from sweet.view.records import Records, Summary
from sweet.view.selection import SORT_KEYS, Filter, passes, sort_summaries
from tests.view.conftest import made, trajectory


def summary(number: int = 0, **changes: Any) -> Summary:
    fields: dict[str, Any] = {
        "id": f"t{number}",
        "task_id": f"task-{number}",
        "ended": "answered",
        "outcome": "failed",
        "reward": 0.5,
        "passed": 1,
        "total": 2,
        "turns": 3,
        "tokens": 10,
        "seconds": 1.0,
        "fault": "",
        "sample": 0,
        "seed": 0,
        "offset": number,
        "length": 1,
    }
    return Summary(**{**fields, **changes})


@pytest.mark.parametrize(
    ("filter", "passing"),
    [
        (Filter(), True),
        (Filter(outcomes=frozenset({"failed"})), True),
        (Filter(outcomes=frozenset({"answered", "timeout"})), True),
        (Filter(outcomes=frozenset({"passed"})), False),
        (Filter(task="task-0"), True),
        (Filter(task="*-0"), True),
        (Filter(task="task"), False),
        (Filter(reward_below=0.5), False),
        (Filter(reward_above=0.4, reward_below=0.6), True),
        (Filter(faults=True), False),
        (Filter(ids=frozenset({"t0"})), True),
        (Filter(ids=frozenset()), False),
    ],
)
def test_a_filter(filter: Filter, passing: bool) -> None:
    assert passes(summary(), filter) is passing


def test_faults_and_unknown_rewards() -> None:
    assert passes(summary(fault="refusal"), Filter(faults=True))
    assert not passes(summary(reward=None), Filter(reward_below=2))


SUMMARIES = st.lists(
    st.builds(
        summary,
        st.integers(0, 99),
        reward=st.none() | st.floats(0, 1),
        tokens=st.none() | st.integers(0, 9),
        fault=st.sampled_from(["", "echo", "deadline"]),
        outcome=st.none() | st.sampled_from(["passed", "failed"]),
    ),
    max_size=12,
)


@given(SUMMARIES, st.sampled_from(SORT_KEYS), st.booleans())
def test_order_loses_nothing_and_leaves_equals_as_they_are(found: list[Summary], key: Any, reverse: bool) -> None:
    ordered = sort_summaries(found, key, reverse)
    assert sorted(map(id, ordered)) == sorted(map(id, found))
    if key == "reward":
        known = [s.reward for s in ordered if s.reward is not None]
        assert known == sorted(known, reverse=reverse)
        assert all(s.reward is None for s in ordered[len(known) :])
    if key != "order":
        assert sort_summaries(ordered, key, reverse) == ordered


def test_bookmarks_are_kept_in_the_run(run: Run) -> None:
    bookmarks = Bookmarks(run, "rollouts-1")
    assert bookmarks.notes == {}
    bookmarks.set("t001", "looks wrong\n\x1b[31m")
    bookmarks.set("t002")
    bookmarks.set("t002", "again")
    assert Bookmarks(run, "rollouts-1").notes == {"t001": "looks wrong\n\x1b[31m", "t002": "again"}
    bookmarks.remove("t001")
    bookmarks.remove("never there")
    assert bookmarks.notes == Bookmarks(run, "rollouts-1").notes == {"t002": "again"}
    assert Bookmarks(run, "rollouts-2").notes == {}, "the same dialogue may occur again in other rollouts"
    assert run.unknown_files(run.manifest()) == []


def test_two_viewers_do_not_undo_each_other(run: Run) -> None:
    one, two = Bookmarks(run, "rollouts-1"), Bookmarks(run, "rollouts-1")
    one.set("t001", "one")
    two.set("t002", "two")
    assert two.notes == {"t001": "one", "t002": "two"}
    assert one.notes == {"t001": "one"}
    one.reload()
    assert one.notes == two.notes
    many = [threading.Thread(target=lambda n=n: Bookmarks(run, "rollouts-1").set(f"n{n}", str(n))) for n in range(20)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    one.reload()
    assert len(one.notes) == 22


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema_version": 2}', b'{"bookmarks": {"rollouts-1": {"a": 1}}}']
)
def test_damaged_bookmarks_are_reported_and_not_changed(run: Run, content: bytes) -> None:
    bookmarks = Bookmarks(run, "rollouts-1")
    bookmarks.path.write_bytes(content)
    with pytest.raises(InputError, match="bookmarks are damaged"):
        Bookmarks(run, "rollouts-1")
    with pytest.raises(InputError, match="bookmarks are damaged"):
        bookmarks.set("t001", "x")
    assert bookmarks.path.read_bytes() == content


def test_a_run_that_cannot_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("sweet.view.bookmarks.write_whole", read_only)
    bookmarks = Bookmarks(run, "rollouts-1")
    with pytest.raises(UsageError, match="Read-only"):
        bookmarks.set("t001", "x")
    assert bookmarks.notes == {}


def test_an_export_is_that_of_data_export(tmp_path: Path, run: Run) -> None:
    records = Records(run)
    path = tmp_path / "chosen.jsonl"
    assert export(records, records.summaries(), path) == 6
    lines = path.read_bytes().splitlines(keepends=True)
    assert sorted(lines) == sorted(export_lines(run, DataExportConfig(), Silent()))
    chosen = sort_summaries(records.summaries(), "reward", reverse=True)[:2]
    assert export(records, chosen, path) == 2
    assert [json.loads(line)["reward"] for line in path.read_text().splitlines()] == [1.0, 1.0]
    assert [one.id for one in read_trajectories(path)] == ["t002", "t005"]
    for wrong in (tmp_path, tmp_path / "no" / "folder.jsonl"):
        with pytest.raises(UsageError):
            export(records, chosen, wrong)


def test_rewards_that_came_with_the_data_are_exported(tmp_path: Path, run: Run) -> None:
    made(run, "data-import", "rollouts", [dump(trajectory(1, reward=0.25))], [], number=1)
    records = Records(run)
    export(records, records.summaries(), tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["reward"] == 0.25
