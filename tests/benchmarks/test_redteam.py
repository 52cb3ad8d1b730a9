"""`benchmarks.redteam`: its classes, and that it detects what does not hold."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import redteam_runs
from benchmarks.nasty import DRAWN, HONEST, NASTY, Nasty
from benchmarks.redteam import GROWN_MIB, cases, is_cheap, lines, summary
from benchmarks.redteam_answers import measured, score
from sweet.sandbox.tiers import SAFE_TIERS, open_sandbox, probe_tier
from tests.report_run import report_run


def test_every_class_has_a_name_and_grows_with_its_size() -> None:
    names = Counter(nasty.name for nasty in (*NASTY, *DRAWN))
    assert max(names.values()) == 1
    for nasty in (*NASTY, *DRAWN):
        small, large = len(nasty.write(1_000)), len(nasty.write(50_000))
        assert large <= 60_000, nasty.name
        assert large > 40_000 or large < small + 10, f"{nasty.name}: a text of the size, or a program for a value"
        assert small <= 2_000, nasty.name


@pytest.mark.skipif(not any(probe_tier(tier).works for tier in SAFE_TIERS), reason="no sandbox works here")
def test_an_answer_that_earns_something_is_not_held() -> None:
    right = Nasty("right", lambda _size: HONEST.replace("2_000_000", "2"))
    no_number = Nasty("invalid", lambda _size: HONEST, lambda _size: "def f(x=0):\n    return 1 / 0\n")
    with open_sandbox("auto", workers=1) as box:
        assert score(box, next(nasty for nasty in NASTY if nasty.name == "unary"), 1_000) == []
        assert [text[:20] for text in score(box, right, 1)] == ["strict: reward 1.0 (", "upstream: reward 1.0"]
        assert score(box, no_number, 1)[0].startswith("strict: reward None (invalid: the reference fails")


def test_the_cost_is_that_of_the_work() -> None:
    case = measured(lambda: ["it grew"] if len(bytearray(200 * 2**20)) else [])
    assert case["wrong"] == ["it grew"]
    assert 150 < case["grown_mib"] < 400
    assert measured(list)["grown_mib"] < 50, "the peak is that of the work alone"


@pytest.mark.parametrize("unread", [0, 1 << 20], ids=["little", "more-than-a-pipe-holds"])
def test_a_process_that_ends_is_not_held(unread: int) -> None:
    first, second = cases("no_such_module", {"steps": ["one", "two"], "unread": " " * unread}, 1.0)
    assert "status 1" in first["wrong"][0]
    assert "No module named" in first["wrong"][0]
    assert second["wrong"] == ["not run after a step that did not end"]


def test_a_process_that_waits_is_not_held() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    said = lines(reading, 0.1, start=0.1)
    assert next(said) == b"one"
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        next(said)
    assert time.monotonic() - began < 60
    os.close(writing)
    assert list(lines(reading, 60.0)) == []
    os.close(reading)


def test_a_summary_counts_what_held_and_what_was_cheap() -> None:
    good: dict[str, Any] = {"part": "runs", "name": "a", "wrong": [], "seconds": 1, "cpu_s": 1, "grown_mib": None}
    large, broken = {**good, "name": "b", "grown_mib": 2 * GROWN_MIB}, {**good, "name": "c", "wrong": ["x"]}
    gone = {"part": "runs", "name": "d", "wrong": ["no end"]}
    assert [is_cheap(case) for case in (good, large, broken, gone)] == [True, False, False, False]
    found = summary([good, large, broken, gone])["runs"]
    assert (found["cases"], found["held"], found["cheap"]) == (4, 2, 1)
    assert [case["name"] for case in found["not_held"]] == ["c", "d"]
    assert [case["name"] for case in found["costly"]] == ["b"]
    assert found["most_grown_mib"]["name"] == "b"


def test_a_command_is_judged_by_its_end_and_by_what_it_shows(tmp_path: Path) -> None:
    run, outside = report_run(tmp_path / "run").path, tmp_path / "outside"
    outside.mkdir()
    case = redteam_runs.measured(redteam_runs.COMMANDS["status"], run)
    assert (case["code"], case["wrong"]) == (0, [])
    assert redteam_runs.faults("unchanged", "status", {"code": 2}) == ["exit code 2"]
    assert redteam_runs.faults("rollouts-half", "eval", {"code": 0})
    assert not redteam_runs.faults("rollouts-half", "status", {"code": 0})
    for name in ("report-link", "report-pipe", "report-socket", "report-folder", "scores-folder-link", "rollouts-half"):
        change = redteam_runs.HOSTILE[name]
        assert not isinstance(change, int)
        change(run, outside)
    assert (run / "report.html").is_dir()
    assert (run / "scores").is_symlink()
    assert set(redteam_runs.PLACES) >= set.union(*redteam_runs.READS.values())


def test_a_run_of_nasty_answers_has_one_for_each_class(tmp_path: Path) -> None:
    redteam_runs.nasty_run(tmp_path / "run", 300)
    rows = (tmp_path / "run" / redteam_runs.PLACES["rollouts"]).read_bytes()
    assert rows.count(b"\n") == len(NASTY)
    redteam_runs.nasty_run(tmp_path / "long", 0)
    first, _ = (tmp_path / "long" / redteam_runs.PLACES["rollouts"]).read_text().splitlines()
    assert len(json.loads(first)["dialogue_history"]) == redteam_runs.LONG_TURNS
