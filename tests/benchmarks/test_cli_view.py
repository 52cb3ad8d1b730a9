"""The benchmark of the viewer, and its run, which is always the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.cli_view import fresh, measure
from benchmarks.large_run import NEEDLES, make, played
from sweet.view.records import Records
from sweet.view.viewer import ViewConfig, Viewer


def test_a_large_run_is_one_as_the_stages_make_them(tmp_path: Path) -> None:
    run = make(tmp_path / "one", 60)
    again = make(tmp_path / "two", 60)
    for kind in ("rollouts", "scores", "candidates", "pairs"):
        (one,), (two,) = run.manifest().of_kind(kind), again.manifest().of_kind(kind)
        assert one.sha256 == two.sha256
    records = Records(run)
    assert len({summary.id for summary in records.summaries()}) == 60
    assert len({summary.task_id for summary in records.summaries()}) == 6
    record = records.record(records.summaries()[0])
    assert record.trajectory == next(played(60))
    assert len(record.ranked) == len(record.trajectory.agent_turns)
    assert record.pairs
    assert [s.offset for s in Viewer(run, ViewConfig(filter="fluorescent ZEBRA")).shown()] == [0]
    assert NEEDLES > 60


def test_every_figure_is_there(tmp_path: Path) -> None:
    figures = measure(
        tmp_path / "run", trajectories=60, rounds=1, command=f"{sys.executable} -m sweet view {{run}} --print"
    )
    for name in ("screen", "print", "find", "text", "hidden"):
        assert 0 < figures[name]["seconds"] < 60
        assert 10 < figures[name]["peak_rss_mib"] < 500
    assert figures["trajectories"] == 60


def test_what_fails_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="No module"):
        fresh([sys.executable, "-m", "no_such_module"])
    with pytest.raises(RuntimeError, match="was not shown: something"):
        fresh([sys.executable, "-c", "print('something')"], "else")


def test_memory_is_that_of_the_process_alone() -> None:
    held = bytearray(200_000_000)
    assert fresh([sys.executable, "-I", "-S", "-c", "pass"])["peak_rss_mib"] < 50
    assert len(held) == 200_000_000
