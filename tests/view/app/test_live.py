"""Runs that change while the viewer is open, empty and damaged ones."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sweet.errors import InputError, Interrupted, UsageError
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.app import browse
from sweet.view.app.table_screen import TableScreen
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.records import Records
from sweet.view.viewer import ViewConfig, Viewer
from tests.view.app.conftest import NARROW, Snapshot, played, seen
from tests.view.app.test_table_screen import cursor, head, shown, viewer
from tests.view.conftest import HOSTILE, AnyConfig, made, score, trajectory


@pytest.fixture
def empty(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def test_a_rollout_that_runs_is_read_again_on_a_key(empty: Run, snapshot: Snapshot) -> None:
    with empty.attempt("rollout", AnyConfig(), inputs=[]) as attempt:
        draft = attempt.start_artifact("rollouts")
        with JsonlWriter(draft.path) as writer:

            async def script(pilot: Pilot[Any]) -> None:
                app = pilot.app
                assert isinstance(app, ViewerApp)
                snapshot(pilot, "live-none-40")
                for number in range(3):
                    writer.write(dump(trajectory(number)))
                await pilot.press("R")
                await pilot.pause()
                assert shown(app) == [0, 1, 2]
                assert "running" in head(app)

            played(viewer(empty), script, NARROW)
        attempt.finish_artifact(draft, rows=3)


def test_scores_are_read_on_the_same_key(empty: Run) -> None:
    rollouts = made(empty, "rollout", "rollouts", [trajectory(n) for n in range(3)], [])

    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        assert "not scored: sweet eval" in head(app)
        assert "answered" in seen(app)
        with suppress(KeyboardInterrupt), empty.attempt("eval", AnyConfig(), inputs=[rollouts]) as attempt:
            attempt.start_artifact("scores")
            await pilot.press("R")
            await pilot.pause()
            assert "being scored" in head(app)
            raise KeyboardInterrupt
        await pilot.press("R")
        await pilot.pause()
        assert "not scored: sweet eval" in head(app)
        made(empty, "eval", "scores", [score(n, n / 2) for n in range(3)], [rollouts])
        await pilot.press("R")
        await pilot.pause()
        assert "scores-2" in head(app)
        assert "passed" in seen(app)

    played(viewer(empty), script)


def test_candidates_that_are_being_made_are_not_called_missing(empty: Run) -> None:
    rollouts = made(empty, "rollout", "rollouts", [trajectory(0)], [])
    with suppress(KeyboardInterrupt), empty.attempt("rank", AnyConfig(), inputs=[rollouts]) as attempt:
        attempt.start_artifact("candidates")
        assert Records(empty).why_no_candidates() == "being ranked"
        raise KeyboardInterrupt
    assert Records(empty).why_no_candidates() == "not ranked: sweet rank"


def test_the_command_names_rollouts_that_are_not_the_newest(empty: Run) -> None:
    for number in range(2):
        made(empty, "rollout", "rollouts", [trajectory(number)], [], number)
    older, newest = Records(empty, "rollouts-1"), Records(empty, "rollouts-2")
    assert (older.state, newest.state) == ("not scored: sweet eval --from rollouts-1", "not scored: sweet eval")
    assert older.why_no_candidates() == "not ranked: sweet rank --rollouts rollouts-1"


def test_a_side_that_runs_is_read_again_and_its_changes_are_unknown(empty: Run) -> None:
    rollouts = made(empty, "rollout", "rollouts", [trajectory(0)], [])
    made(empty, "eval", "scores", [score(0, 0.5)], [rollouts])
    with suppress(KeyboardInterrupt), empty.attempt("rollout", AnyConfig(number=1), inputs=[]) as attempt:
        draft = attempt.start_artifact("rollouts")

        async def script(pilot: Pilot[Any]) -> None:
            app = pilot.app
            assert isinstance(app, ViewerApp)
            assert "running" in head(app)
            assert "no task in common; R reads them again" in seen(app)
            with JsonlWriter(draft.path) as writer:
                writer.write(dump(trajectory(0)))
            await pilot.press("R")
            await pilot.pause()
            assert len(shown(app)) == 1
            assert "solves" not in head(app), "B has no rewards yet"

        played(viewer(empty, from_="rollouts-1", against="rollouts-2"), script, (140, 24))
        raise KeyboardInterrupt
    assert "unfinished" in Viewer(empty, ViewConfig(from_="rollouts-1", against="rollouts-2")).sides[1].name


def test_a_run_has_its_name_where_it_is_named_by_a_dot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path)
    assert Viewer(Run.open("."), ViewConfig()).title().startswith(f"{run.path.name} · ")


@pytest.mark.parametrize("size", [(80, 24), NARROW])
def test_what_is_not_scored(empty: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    rows = [trajectory(0), trajectory(1, outcome="human_error", fault="refusal"), trajectory(2, outcome="out_of_turns")]
    made(empty, "rollout", "rollouts", rows, [])

    async def script(pilot: Pilot[Any]) -> None:
        snapshot(pilot, f"unscored-{size[0]}")

    played(viewer(empty), script, size)


def test_rollouts_without_a_row(empty: Run, snapshot: Snapshot) -> None:
    made(empty, "rollout", "rollouts", [], [])

    async def script(pilot: Pilot[Any]) -> None:
        snapshot(pilot, "empty-80")
        # No key has anything to work on, and none minds.
        await pilot.press("enter", "f", "s", "o", ">", "<", "r", "j", "k", "G", "g")
        await pilot.press("pagedown", "pageup", "x")
        await pilot.pause()
        assert "The rollouts are empty" in seen(pilot.app)

    played(viewer(empty), script)


def test_a_run_without_rollouts_is_an_error_before_the_screen_is_taken(empty: Run) -> None:
    with pytest.raises(UsageError, match="rollouts"):
        browse(empty, ViewConfig())


def test_a_damaged_file_is_reported_and_the_shown_rows_stay(run: Run) -> None:
    app = viewer(run)
    path = app.viewer.records.path
    whole = path.read_bytes()

    async def script(pilot: Pilot[Any]) -> None:
        path.write_text('{"id": "[bold]x[/bold]", "task": 3}\n' * 3)
        await pilot.press("R")
        await pilot.pause()
        assert "error: " in seen(app)
        assert "t003" in seen(app)
        path.write_bytes(whole)
        await pilot.press("R")
        await pilot.pause()
        assert len(shown(app)) == 6

    played(app, script, (120, 24))


def test_a_failing_key_is_reported_and_the_application_continues(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    app = viewer(run)

    def broken(self: TableScreen) -> None:
        raise InputError(f"The row [bold]x[/bold] {HOSTILE} is damaged.", path=run.path, line=3)

    monkeypatch.setattr(TableScreen, "action_reverse", broken)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("r")
        await pilot.pause()
        assert "error: The row [bold]x[/bold] ␛[31mred" in seen(app)
        assert "line 3" in seen(app)
        await pilot.press("down")
        assert cursor(app) == "t001"

    played(app, script, (120, 24))


def leave_unfinished(run: Run) -> None:
    with suppress(Interrupted), run.attempt("rollout", AnyConfig(), inputs=[]) as attempt:
        with JsonlWriter(attempt.start_artifact("rollouts").path) as writer:
            writer.write(dump(trajectory(0)))
        raise Interrupted("stopped")


def test_rollouts_that_were_left_unfinished(empty: Run) -> None:
    leave_unfinished(empty)

    async def script(pilot: Pilot[Any]) -> None:
        assert "unfinished" in seen(pilot.app).splitlines()[0]

    played(viewer(empty), script)


def test_an_unexpected_error_restores_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback with the values of variables is drawn: the command line reports the bug."""
    app = viewer(run)
    monkeypatch.setattr("sweet.view.app.table_screen.sort_rows", lambda *_: 1 / 0)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        played(app, script)
    assert isinstance(app.failure, ZeroDivisionError)
    assert not app._exit_renderables


def test_a_large_run_is_quick_to_move_in(empty: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a key does not grow with the number of rows."""
    rows = (json.loads(json.dumps(dump(trajectory(n)))) for n in range(2000))
    made(empty, "rollout", "rollouts", rows, [])
    app = viewer(empty)

    async def script(pilot: Pilot[Any]) -> None:
        drawn = 0
        layout: Any = type(app.table.rows._layout)
        draw = layout.row

        def counted(*arguments: Any) -> Any:
            nonlocal drawn
            drawn += 1
            return draw(*arguments)

        monkeypatch.setattr(layout, "row", counted)
        await pilot.press("end", "up", "pageup", ">", "home")
        assert 0 < drawn < 400

    played(app, script)
