"""Filters, order, JSON, and the browser driven by keys, on a real terminal too."""

from __future__ import annotations

import json
import os
import pty
import select
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import RenderableType

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.view.viewer import ViewConfig, Viewer
from tests.view.conftest import TRAJECTORIES, made, trajectory
from tests.view.test_terminal import drawn


def ids(run: Run, **fields: Any) -> list[str]:
    return [summary.id for summary in Viewer(run, ViewConfig(**fields)).shown]


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"outcome": ["passed"]}, [2, 5]),
        ({"outcome": ["passed", "failed"], "limit": 2}, [0, 1]),
        ({"outcome": ["answered"]}, [0, 1, 2, 3, 4, 5]),
        ({"outcome": ["timeout"]}, []),
        ({"task": "task-1"}, [2, 3]),
        ({"task": "task-*"}, [0, 1, 2, 3, 4, 5]),
        ({"reward_below": 0.5}, [0, 3]),
        ({"reward_above": 0.0, "reward_below": 1.0}, [1, 4]),
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
    assert ids(run, reward_below=2) == []
    assert ids(run, sort="reward", reverse=True) == ["t000"]
    assert ids(run, reward_below=0.5, from_="rollouts-1") == ["t000", "t003"]


def test_the_caption_says_what_is_left_out(run: Run) -> None:
    assert "2 of 6 shown" in drawn(Viewer(run, ViewConfig(limit=2)).table())
    assert "2 of 6 pass" in drawn(Viewer(run, ViewConfig(outcome=["passed"])).table())


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


class Keys:
    """Somebody who types, and what they see after each key."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.seen: list[str] = []

    def show(self, renderable: RenderableType) -> None:
        self.seen.append(drawn(renderable, 100))

    def ask(self, prompt: str) -> str:
        if not self.keys:
            raise EOFError
        return self.keys.pop(0)


def test_browsing(run: Run) -> None:
    keys = Keys(["n", "n", "p", "p", "5", "f", "f", "99", "h", "t", "?", "²", "q", "n"])
    Viewer(run, ViewConfig()).browse(keys.show, keys.ask)
    heads = [text.splitlines()[0] for text in keys.seen]
    assert [head.split()[0] for head in heads[1:7]] == ["t000", "t001", "t000", "There", "t004", "There"]
    assert "hidden from the agent" in next(text for text in keys.seen[7:] if text.startswith("t004"))
    assert heads[-1].startswith("There")
    assert keys.keys == ["n"], "q ends it"


def test_browsing_ends_with_the_input(run: Run) -> None:
    keys = Keys([])
    Viewer(run, ViewConfig()).browse(keys.show, keys.ask)
    assert len(keys.seen) == 1


def test_browsing_a_real_terminal(run: Run) -> None:
    """The program itself on a pty of 40 columns: table, first dialogue, quit."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm", COLUMNS="40", LINES="24", NO_COLOR="1")
        os.execv(sys.executable, [sys.executable, "-m", "sweet", "view", str(run.path)])
    shown = ""

    def wait_for(word: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while word not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    shown += os.read(terminal, 65536).decode(errors="replace")
                except OSError:
                    break
        assert word in shown, shown

    try:
        wait_for("quit")
        assert "t005" in shown
        shown = ""
        os.write(terminal, b"2\n")
        wait_for("quit")
        assert "candidates" in shown
        assert "\x1b[31m" not in shown, "neither colours nor a model's escapes"
        os.write(terminal, b"q\n")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(terminal)
