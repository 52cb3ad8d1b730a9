"""Two rollouts side by side, driven with keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sweet.cli.app import run as program
from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.app.dialogue_screen import DialogueScreen
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.pairs import CHANGES, Pair, open_side, pair_up
from sweet.view.viewer import ViewConfig, Viewer
from tests.view.app.conftest import NARROW, WIDE, Snapshot, answer, played, seen, until
from tests.view.app.summaries import summary
from tests.view.conftest import HOSTILE, made, score, trajectory
from tests.view.test_terminal import drawn

REWARDS = (1.0, 0.5, 0.0, 0.0, 1.0, 1.0)
"""Rewards after the training; before it they are 0, 0.5, 1, 0, 0.5, 1."""


@pytest.fixture
def both(run: Run) -> Run:
    """A second rollout of the same tasks, without the last dialogue, in which the first has another question."""
    rows = [trajectory(number, id=f"n{number:03d}", sample=number % 2) for number in range(5)]
    turns = list(rows[0].dialogue_history)
    turns[1] = turns[1].model_copy(update={"content": "Is zero allowed?", "output": None})
    rows[0] = rows[0].model_copy(update={"dialogue_history": tuple(turns)})
    rollouts = made(run, "rollout", "rollouts", map(dump, rows), [], number=1)
    scores = [score(number, REWARDS[number]) | {"id": f"n{number:03d}"} for number in range(5)]
    made(run, "eval", "scores", scores, [rollouts], number=1)
    return run


def viewer(run: Run, **fields: Any) -> ViewerApp:
    return ViewerApp(run, ViewConfig(from_="rollouts-1", **fields))


def pairs(app: ViewerApp) -> list[tuple[str, str]]:
    assert app.screen is app.table
    return [(row.left.id, row.right.id) for row in app.table.rows.shown if isinstance(row, Pair)]


def test_dialogues_are_paired_by_task_and_sample() -> None:
    left = [summary(id=name, task_id=task, sample=sample) for name, task, sample in
            [("a1", "t", 1), ("a0", "t", 0), ("b0", "u", 0), ("c0", "v", 0)]]  # fmt: skip
    right = [summary(id=name, task_id=task, sample=sample) for name, task, sample in
             [("A5", "t", 5), ("A3", "t", 3), ("A9", "t", 9), ("B0", "u", 0), ("D", "w", 0)]]  # fmt: skip
    assert [(pair.left.id, pair.right.id) for pair in pair_up(left, right)] == [
        ("a1", "A5"),
        ("a0", "A3"),
        ("b0", "B0"),
    ]


@pytest.mark.parametrize(
    ("a", "b", "passing"),
    [
        (0.5, 1.0, {"solved", "better", "differs"}),
        (1.0, 0.0, {"lost", "worse", "differs"}),
        (0.25, 0.5, {"better", "differs"}),
        (1.0, 1.0, set()),
        (None, 1.0, set()),
    ],
)
def test_what_the_filters_let_pass(a: float | None, b: float, passing: set[str]) -> None:
    (pair,) = pair_up([summary(reward=a)], [summary(reward=b)])
    assert {name for name, (_, passes) in CHANGES.items() if passes(pair)} == passing


@pytest.mark.parametrize("size", [WIDE, NARROW, (140, 24)])
def test_what_the_comparison_looks_like(both: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        snapshot(pilot, f"comparison-{size[0]}")
        await pilot.press("o", "enter")
        snapshot(pilot, f"comparison-solved-{size[0]}")

    played(viewer(both, against="rollouts-2"), script, size)


def test_filters_and_order(both: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        assert [left for left, _ in pairs(app)] == ["t000", "t001", "t002", "t003", "t004"]
        assert "1 only in A" in seen(app)
        await pilot.press("o")
        assert "A fails, B solves" in seen(app)
        assert pairs(app) == [("t000", "n000"), ("t004", "n004")]
        await pilot.press("o")
        assert pairs(app) == [("t002", "n002")]
        await pilot.press("x", "r")
        assert [left for left, _ in pairs(app)] == ["t004", "t003", "t002", "t001", "t000"]
        await pilot.press("r", *["greater_than_sign"] * 5)
        assert [left for left, _ in pairs(app)][:1] == ["t002"], "sorted by the change"

    played(viewer(both, against="rollouts-2"), script)


def test_filters_and_search_of_the_table_count_for_a(both: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        failed = [name for name, _ in pairs(app)]
        assert "t001" in failed
        assert "t002" not in failed
        assert "outcome=failed" in seen(app)
        assert f"{len(failed)} of 5 pairs" in seen(app)
        await pilot.press("slash")
        await answer(pilot, "outcome=failed return a + 1")
        await until(pilot, lambda: pairs(app) == [("t001", "n001")])
        await until(pilot, lambda: "search “return a + 1”: 1 found" in seen(app))
        await pilot.press("o", "x")
        assert len(pairs(app)) == 5

    played(viewer(both, against="rollouts-2", filter="outcome=failed"), script)


def test_a_filter_does_not_change_who_is_beside_whom(both: Run) -> None:
    """t001, the second dialogue of its task, is beside the second one of B, whether the first is shown or not."""
    config = ViewConfig(from_="rollouts-1", against="rollouts-2", filter="return a + 1")
    assert [(pair.left.id, pair.right.id) for pair in Viewer(both, config).chosen() if isinstance(pair, Pair)] == [
        ("t001", "n001")
    ]


def test_one_key_goes_from_difference_to_difference(both: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        await pilot.press("enter")
        screen = app.screen
        assert isinstance(screen, DialogueScreen)
        top: list[str] = []
        for _ in range(4):
            await pilot.press("d")
            await pilot.pause()
            view = screen.view.top()
            assert view is not None
            top.append(f"{screen.position} {view.part.kind}")
        assert top[0] == "0 agent", "the question that differs"
        assert any(place.startswith("1") or place.startswith("2") for place in top), "then the next two"
        await pilot.press("n", "n", "n", "n", "n")
        assert screen.position == 4
        await pilot.press("d", "d", "d", "d")
        assert "no further difference" in [str(message.message) for message in app._notifications]

    played(viewer(both, against="rollouts-2"), script, (100, 12))


def test_the_advantages_of_both_are_above_the_turn(both: Run) -> None:
    ranked = {
        "trajectory_id": "n001",
        "task_id": "task-0",
        "turn": 1,
        "observation": [],
        "candidates": [{"text": "Which number?", "advantage": -0.75, "logprob": -1.0, "reference": -1.0, "tokens": 3}],
        "taken": {"text": "Which number?", "advantage": -0.75, "logprob": -1.0, "reference": -1.0, "tokens": 3},
    }
    made(both, "rank", "candidates", [ranked], [both.artifact("rollouts-2")], number=1)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("down", "enter")
        (line,) = [line for line in seen(pilot.app).splitlines() if "-0.750" in line]
        assert line.index("+0.250") < line.index("-0.750"), "A left, B right"

    played(viewer(both, against="rollouts-2"), script, (120, 40))


def test_where_there_are_candidates_is_said(both: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        await pilot.press("down", "enter", "c")
        assert "No idea." in seen(app)
        await pilot.press("n", "c")
        assert "1 dialogue here have candidates" in str([*app._notifications][-1].message)

    played(viewer(both), script, (80, 40))


def test_nothing_was_ranked(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "bare", task="code")
    made(run, "rollout", "rollouts", [dump(trajectory(1))], [])

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "c")
        await pilot.pause()
        assert "sweet rank" in str([*pilot.app._notifications][-1].message)

    played(viewer(run), script)


def test_hits_are_marked(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await until(pilot, lambda: app.table.found is not None)
        await pilot.press("enter")
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        marked = {part.text for strip in strips for part in strip if part.style and part.style.reverse}
        assert marked == {"usual"}

    played(viewer(run, filter="USUAL"), script, (80, 40))


def test_h_moves_to_what_it_shows_and_back(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app

        def dialogue() -> list[str]:
            """Return some lines without the scroll bar."""
            return [line[:58] for line in seen(app).splitlines()[2:8]]

        await pilot.press("enter", "j", "j")
        before = dialogue()
        assert "hidden from the agent" not in seen(app)
        await pilot.press("h")
        assert "hidden from the agent" in seen(app)
        await pilot.press("h")
        assert dialogue() == before

    played(viewer(run), script, (60, 12))


def test_two_rollouts_are_printed(both: Run, tmp_path: Path) -> None:
    found = Viewer(both, ViewConfig(from_="rollouts-1", against="rollouts-2", filter="change=solved"))
    table = drawn(found.table(), 100)
    assert "task-0" in table
    assert "+1.00" in table
    assert "task-1" not in table
    printed = found.as_json()
    assert printed["pairs"] == [
        {"a": "t000", "b": "n000", "change": 1.0},
        {"a": "t004", "b": "n004", "change": 0.5},
    ]
    assert printed["metrics"] == {"trajectories": 6, "chosen": 2, "shown": 2}
    assert "Is zero allowed?" in drawn(found.dialogue("t000"), 100)
    with pytest.raises(UsageError, match="no dialogue of this task"):
        found.dialogue("t005")


def test_rollouts_of_another_run(both: Run, tmp_path: Path) -> None:
    other = Run.create(tmp_path / "other", task="code")
    made(other, "rollout", "rollouts", [dump(trajectory(1, id=HOSTILE))], [])
    for reference in (str(other.path), f"{other.path}:rollouts-1"):
        side = open_side(both, reference, draw=True)
        assert [one.id for one in side.records.summaries()] == [HOSTILE]

    async def script(pilot: Pilot[Any]) -> None:
        assert "other:rollouts-1" in seen(pilot.app)
        await pilot.press("enter")
        assert "\u202e" not in seen(pilot.app)
        assert "‹U+202E›" in seen(pilot.app)

    played(viewer(both, against=str(other.path)), script, (140, 30))


def test_options_that_do_not_agree(both: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="leave out --against"):
        ViewConfig(against="rollouts-2", html=Path("x.html"))
    assert program(["view", str(both.path), "--filter", "change=solved", "--print"]) == 2
    assert "--against ROLLOUTS" in capsys.readouterr().err
    for line, said in (("change=solved", "--against ROLLOUTS"), ("reward<x", "reward<x")):  # before anything is served
        assert program(["view", str(both.path), "--filter", line, "--serve"]) == 2
        assert said in capsys.readouterr().err
    words = ["view", str(both.path), "--from", "rollouts-1", "--against", "rollouts-2", "--filter", "change=solved"]
    assert program([*words, "--print"]) == 0
    assert "task-2" in capsys.readouterr().out
    assert program(["view", str(both.path), "--from", "rollouts-1", "--against", "rollouts-2", "--id", "t000"]) == 0
    assert "Is zero allowed?" in capsys.readouterr().out


@pytest.mark.parametrize("reference", ["rollouts-9", "scores-1", "nowhere"])
def test_rollouts_that_are_not_there(both: Run, reference: str) -> None:
    with pytest.raises(UsageError):
        open_side(both, reference, draw=True)
