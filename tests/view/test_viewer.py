"""Filters, order, search, JSON, and the output on a terminal."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest

from sweet.cli.app import run as program
from sweet.errors import UsageError
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.viewer import ViewConfig, Viewer
from tests.results.page_data import opened
from tests.view.conftest import TRAJECTORIES, AnyConfig, made, trajectory
from tests.view.test_terminal import drawn


def ids(run: Run, **fields: Any) -> list[str]:
    return [summary.id for summary in Viewer(run, ViewConfig(**fields)).shown()]


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"filter": "outcome=passed"}, [2, 5]),
        ({"filter": "outcome=passed,failed", "limit": 2}, [0, 1]),
        ({"filter": "outcome=answered"}, [0, 1, 2, 3, 4, 5]),
        ({"filter": "outcome=timeout"}, []),
        ({"filter": "task=task-1"}, [2, 3]),
        ({"filter": "task=task-*"}, [0, 1, 2, 3, 4, 5]),
        ({"filter": "reward<0.5"}, [0, 3]),
        ({"filter": "reward>0 reward<1"}, [1, 4]),
        ({"sort": "reward"}, [0, 3, 1, 4, 2, 5]),
        ({"sort": "reward", "reverse": True, "limit": 3}, [2, 5, 1]),
        ({"sort": "tokens", "reverse": True}, [5, 4, 3, 2, 1, 0]),
        ({"sort": "seconds", "reverse": True}, [5, 4, 3, 2, 1, 0]),
        ({"reverse": True}, [5, 4, 3, 2, 1, 0]),
    ],
)
def test_filters_and_order(run: Run, fields: dict[str, Any], numbers: list[int]) -> None:
    assert ids(run, **fields) == [f"t{number:03d}" for number in numbers]


def test_what_was_not_scored_passes_no_reward_filter(run: Run) -> None:
    made(run, "rollout", "rollouts", [trajectory(0)], [], number=1)
    assert ids(run, filter="reward<2") == []
    assert ids(run, sort="reward", reverse=True) == ["t000"]
    assert ids(run, filter="reward<0.5", from_="rollouts-1") == ["t000", "t003"]


def test_the_caption_says_what_is_omitted(run: Run) -> None:
    assert "2 of 6 shown" in drawn(Viewer(run, ViewConfig(limit=2)).table())
    assert "2 of 6 pass" in drawn(Viewer(run, ViewConfig(filter="outcome=passed")).table())
    assert "0 of 6 pass the filters and contain 'rewrd<0.5'" in drawn(
        Viewer(run, ViewConfig(filter="rewrd<0.5")).table()
    )


def test_json_holds_the_hidden_only_where_asked_for(run: Run) -> None:
    listed = json.loads(json.dumps(Viewer(run, ViewConfig(limit=4)).as_json()))
    assert listed["metrics"] == {"trajectories": TRAJECTORIES, "chosen": TRAJECTORIES, "shown": 4}
    assert listed["trajectories"][1]["reward"] == 0.5
    whole = Viewer(run, ViewConfig(id="t001")).as_json()["trajectory"]
    assert len(whole["ranked"]) == len(whole["pairs"]) == 1
    assert whole["score"]["reward"] == 0.5
    assert "ground_truth" not in json.dumps(whole)
    assert "ground_truth" in json.dumps(Viewer(run, ViewConfig(id="t001", hidden=True)).as_json())


def test_a_run_without_rollouts_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rollouts"):
        Viewer(Run.create(tmp_path / "empty", task="code"), ViewConfig())


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({"filter": "return a + 3"}, [3]),
        ({"filter": "RETURN A + 3"}, [3]),
        ({"filter": "return a +", "sort": "reward", "reverse": True, "limit": 1}, [2]),
        ({"filter": "test1"}, []),
        ({"filter": "return a + 1", "hidden": True}, [1, 2, 3]),
        ({"filter": "fault=*"}, []),
    ],
)
def test_search_and_faults(run: Run, fields: dict[str, Any], numbers: list[int]) -> None:
    assert ids(run, **fields) == [f"t{number:03d}" for number in numbers]


def test_only_faults(run: Run) -> None:
    rows = [trajectory(0), trajectory(1, outcome="deadline"), trajectory(2, outcome="human_error", fault="echo")]
    made(run, "rollout", "rollouts", map(dump, rows), [], number=1)
    assert ids(run, filter="fault=*") == ["t001", "t002"]
    assert ids(run, sort="fault") == ["t001", "t002", "t000"]
    listed = Viewer(run, ViewConfig()).as_json()["trajectories"]
    assert [row["fault"] for row in listed] == ["", "deadline", "echo"]


def test_every_ending_can_be_asked_for(run: Run) -> None:
    rows = [trajectory(0), trajectory(1, outcome="token_limit")]
    made(run, "rollout", "rollouts", map(dump, rows), [], number=1)
    assert ids(run, filter="outcome=token_limit") == ["t001"]


def test_a_row_as_json(run: Run) -> None:
    listed = json.loads(json.dumps(Viewer(run, ViewConfig(limit=2)).as_json()))["trajectories"]
    assert listed[1] == {
        "id": "t001",
        "task_id": "task-0",
        "ended": "answered",
        "outcome": "failed",
        "reward": 0.5,
        "passed": 1,
        "total": 2,
        "turns": 2,
        "tokens": 101,
        "seconds": 1.5,
        "fault": "",
        "sample": 0,
        "seed": None,
        "request": "Write a function that adds 0. The signature is: def add(a)",
    }


def test_unfinished_rollouts_are_called_so(run: Run) -> None:
    with run.attempt("rollout", AnyConfig(number=7)) as attempt:
        draft = attempt.start_artifact("rollouts")
        assert "rollouts-2 · running" in drawn(Viewer(run, ViewConfig(filter="x")).table())
        with JsonlWriter(draft.path) as writer:
            writer.write(dump(trajectory(3)))
        assert ids(run) == ["t003"]
        assert ids(run, filter="return a + 3") == ["t003"]
    assert "rollouts-2 · unfinished" in drawn(Viewer(run, ViewConfig(from_="rollouts-2")).table())


def test_a_selection_is_written(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "failed.html"
    words = ["view", str(run.path), "--filter", "outcome=failed", "--limit", "2", "--html", str(page)]
    assert program([*words, "--json"]) == 0
    metrics = {"trajectories": 2, "pictures_left_out": 0, "html": str(page)}
    assert json.loads(capsys.readouterr().out)["metrics"] == metrics
    assert opened(page.read_text()).count("<details class") == 2
    assert program(["view", str(run.path), "--html", str(tmp_path / "no" / "out.html")]) == 2


def on_a_terminal(*words: str) -> tuple[int, str]:
    """Run the program on a pty of 40 columns and return its exit code and output."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm", COLUMNS="40", LINES="24", NO_COLOR="1")
        os.execv(sys.executable, [sys.executable, "-m", "sweet", "view", *words])
    shown = b""
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:  # it has ended
        pass
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode(errors="replace")


def test_on_a_terminal_what_is_to_be_printed_is_printed(run: Run) -> None:
    code, shown = on_a_terminal(str(run.path), "--print")
    assert code == 0
    assert "t005" in shown
    code, shown = on_a_terminal(str(run.path), "--id", "t001")
    assert code == 0
    assert "3 candidates" in shown
    assert "\x1b[31m" not in shown, "neither colours nor a model's escapes"


def test_a_terminal_gets_the_application(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    called: list[tuple[Path, ViewConfig]] = []
    monkeypatch.setattr("sweet.view.app.browse", lambda run, config: called.append((run.path, config)))
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert program(["view", str(run.path), "--filter", "fault=*", "--sort", "reward"]) == 0
    assert called == [(run.path, ViewConfig(filter="fault=*", sort="reward"))]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert program(["view", str(run.path), "--filter", "fault=*"]) == 0
    assert len(called) == 1, "the application would be drawn into a file"
