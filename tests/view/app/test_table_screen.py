"""The table, driven with keys and the mouse."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, KeyPanel

from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.app.dialogue_screen import DialogueScreen
from sweet.view.app.frame import Facts, Keys, Prompt
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.pairs import Pair
from sweet.view.selection import Filter
from sweet.view.viewer import ViewConfig
from tests.view.app.conftest import NARROW, WIDE, Snapshot, answer, played, seen, until
from tests.view.conftest import HOSTILE, made, score, task, trajectory


def viewer(run: Run, **fields: Any) -> ViewerApp:
    return ViewerApp(run, ViewConfig(**fields))


def shown(app: ViewerApp) -> list[int]:
    """The numbers of the trajectories in the table."""
    return [int(summary.id.removeprefix("t")) for summary in app.table.rows.shown]


def cursor(app: ViewerApp) -> str:
    return app.table.current.id if app.table.current else ""


def head(app: ViewerApp) -> str:
    return "".join(seen(app).splitlines()[:3])


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_the_first_screen(run: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        snapshot(pilot, f"table-{size[0]}")

    played(viewer(run), script, size)


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_filters_and_an_order(run: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("/")
        await answer(pilot, "reward<1")
        await pilot.press(">", "r", "end")
        pilot.app.clear_notifications()
        await pilot.pause()
        snapshot(pilot, f"narrowed-{size[0]}")

    played(viewer(run), script, size)


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_a_request_that_is_longer_than_a_line_is_below_the_table(run: Run, width: int) -> None:
    long = task(0).model_copy(update={"problem_description": "I need the price of parking, " + "by the hour, " * 40})
    rollouts = made(run, "rollout", "rollouts", [dump(trajectory(0, task=long))], [], number=1)
    made(run, "eval", "scores", [score(0, 1)], [rollouts], number=1)

    async def script(pilot: Pilot[Any]) -> None:
        below = seen(pilot.app).splitlines()[-2]
        assert "request I need the price" in below
        assert below.endswith("…")
        assert len(below) in (width, width - 1)

    played(viewer(run), script, (width, 24))


def test_moving(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        for key, there in [
            ("j", 1), ("down", 2), ("k", 1), ("up", 0), ("up", 0), ("end", 5), ("down", 5), ("home", 0), ("G", 5),
            ("g", 0), ("pagedown", 5), ("pageup", 0), ("ctrl+f", 5), ("ctrl+b", 0),
        ]:  # fmt: skip
            await pilot.press(key)
            assert app.table.rows.cursor == there, key

    played(viewer(run), script)


def test_moving_scrolls(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        rows = pilot.app.screen.query_one("Rows")
        await pilot.press("end")
        assert "› passed" in seen(pilot.app)
        assert rows.scroll_offset.y > 0
        await pilot.press("g")
        assert rows.scroll_offset.y == 0
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert "tokens" in seen(pilot.app)

    played(viewer(run), script, (40, 10))


def test_sorting_with_keys(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press(">")
        assert app.table.sort == ("outcome", False)
        await pilot.press(">")
        assert shown(app) == [0, 3, 1, 4, 2, 5]
        await pilot.press("r")
        assert shown(app) == [2, 5, 1, 4, 0, 3]
        await pilot.press("<", "<")
        assert app.table.sort == ("order", False)
        await pilot.press("<")
        assert app.table.sort == ("request", False)

    played(viewer(run), script)


def test_clicking_rows(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.click("Rows", offset=(10, 3))
        assert cursor(app) == "t002"
        await pilot.click("Rows", offset=(10, 12))
        assert cursor(app) == "t002", "below the last row"
        await pilot.click("Rows", offset=(10, 5), times=2)
        assert isinstance(app.screen, DialogueScreen)
        assert app.screen.position == 4

    played(viewer(run), script)


def test_filters(run: Run, snapshot: Snapshot) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press("o")
        assert shown(app) == [0, 1, 3, 4]
        assert "outcome=failed" in head(app)
        assert "4 of 6" in head(app)
        await pilot.press("o")
        assert shown(app) == [2, 5]
        await pilot.press("o")
        assert shown(app) == [0, 1, 2, 3, 4, 5]
        await pilot.press("end", "/")
        snapshot(pilot, "where-80")
        await pilot.press(*"task=*-1 reward>0", "enter")
        assert shown(app) == [2]
        await pilot.press("/")
        await answer(pilot, "fault=*")
        assert shown(app) == []
        assert "Nothing passes the filters" in seen(app)
        await pilot.press("x")
        assert len(shown(app)) == 6
        await pilot.press("/")
        await answer(pilot, "reward<x")
        await pilot.pause()
        assert "error: 'reward<x' needs a number" in seen(app)
        assert len(shown(app)) == 6
        await pilot.press("/", *"fault=*", "escape")
        assert len(shown(app)) == 6

    played(viewer(run), script)


def test_the_keys_of_the_rows_are_back_when_there_are_rows_again(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press("/")
        await answer(pilot, "reward>7")
        assert shown(app) == []
        await pilot.press("x", "down")
        assert cursor(app) == "t001"
        assert "open" in seen(app).splitlines()[-1]

    played(viewer(run), script)


def test_a_filter_that_is_not_touched_stays(run: Run) -> None:
    """Although the prompt shows a printable form of the pattern."""
    name = "\x1b[31mtask"
    made(run, "rollout", "rollouts", [trajectory(0, task=task(0).model_copy(update={"id": name}))], [], number=1)

    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press("/", "enter")
        assert shown(app) == [0]

    played(viewer(run, filter="task=\x1b?31mtask"), script)


@pytest.mark.parametrize("size", [(40, 10), (20, 5)])
def test_something_is_seen_on_a_terminal_however_small(run: Run, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        assert "failed" in seen(app)
        await pilot.press("/", *"fault")
        assert "fault" in seen(app)
        await pilot.press("escape", "enter")
        assert "task task-0" in seen(app)

    played(viewer(run), script, size)


def test_the_options_of_the_command_are_the_first_filter(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        assert shown(app) == [4, 3, 1]
        assert "outcome=failed" in head(app)

    played(viewer(run, filter="outcome=failed", sort="tokens", reverse=True, limit=3), script)


def test_a_search_may_be_an_option_too(run: Run) -> None:
    app = viewer(run, filter="return a + 3")

    async def script(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: shown(app) == [3])

    played(app, script)


def test_the_next_failure(run: Run) -> None:
    rows = [trajectory(0), trajectory(1, outcome="human_error", fault="refusal"), trajectory(2)]
    rollouts = made(run, "rollout", "rollouts", rows, [], number=1)
    made(run, "eval", "scores", [score(0, 1), score(1, 0), score(2, 1)], [rollouts], number=1)

    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press("f")
        assert cursor(app) == "t001"
        await pilot.press("f")
        await pilot.pause()
        assert "no other failure" in seen(app)

    played(viewer(run), script)


def test_opening_and_coming_back(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press("o", "down", "enter")
        screen = app.screen
        assert isinstance(screen, DialogueScreen)
        assert ([s.id for s in screen.shown], screen.position) == (["t000", "t001", "t003", "t004"], 1)
        assert screen.options.hidden
        assert screen.options.screenshots is None
        await pilot.press("n", "n", "q")
        assert app.screen is app.table
        assert cursor(app) == "t004", "the cursor follows to the dialogue that was shown"
        await pilot.press("enter", "escape")
        assert app.screen is app.table

    played(viewer(run, hidden=True), script)


def test_side_by_side(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        await pilot.press("down", "s")
        assert isinstance(app.screen, DialogueScreen)
        (pair,) = app.screen.shown
        assert isinstance(pair, Pair)
        assert (pair.left.id, pair.right.id) == ("t001", "t000")
        await pilot.press("q")
        assert cursor(app) == "t001"

    played(viewer(run), script)


def test_the_way_into_dialogues_and_back(run: Run) -> None:
    app = viewer(run)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("down", "enter")
        await pilot.pause()
        assert "2 of 6" in seen(app)
        assert "Which number?" in seen(app)
        assert "next dialogue" in await keys_listed(pilot)
        await pilot.press("n", "n")
        whole = app.viewer.records.path.read_bytes()
        app.viewer.records.path.write_text("{}\n")
        await pilot.press("n")
        await pilot.pause()
        assert "error: " in seen(app), "and the screen is still open"
        app.viewer.records.path.write_bytes(whole)
        await pilot.press("q")
        assert cursor(app) == "t003"
        await pilot.press("home", "s")
        await pilot.pause()
        assert "side by side" in seen(app)
        await pilot.press("q")
        assert app.screen is app.table

    played(app, script)


def test_searching(run: Run, snapshot: Snapshot) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)

        async def found() -> list[int]:
            await until(pilot, lambda: not app.table.filter.text or app.table.found is not None)
            await pilot.pause(0.3)
            return shown(app)

        await pilot.press("/")
        await answer(pilot, "RETURN A + 4")
        assert await found() == [4]
        assert "“RETURN A + 4”: 1 found" in head(app)
        await pilot.press("/")
        assert app.screen.query_one(Input).value == "RETURN A + 4", "to be changed"
        await pilot.press("ctrl+u", *"reward<1 return a")
        await pilot.pause()
        snapshot(pilot, "search-80")
        await pilot.press("enter")
        assert await found() == [0, 1, 3, 4]
        await pilot.press("escape")
        assert len(shown(app)) == 6
        await pilot.press("/", "ctrl+u", "enter")
        assert len(shown(app)) == 6

    played(viewer(run), script)


async def keys_listed(pilot: Pilot[Any]) -> str:
    """Return the list of the keys, page by page until it is hidden again."""
    await pilot.press("question_mark")
    await pilot.pause()
    listed = ""
    while pilot.app.screen.query(KeyPanel):
        listed += " ".join(seen(pilot.app).replace("│", " ").split())
        await pilot.press("question_mark")
        await pilot.pause()
    return listed


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_help_lists_every_key(run: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        await pilot.press("question_mark")
        await pilot.pause()
        snapshot(pilot, f"help-{size[0]}")
        app.screen.query_one(KeyPanel).remove()
        listed = await keys_listed(pilot)
        assert all(word in listed for word in ("search", "reverse", "first", "last", "shell"))

    played(viewer(run), script, size)


def test_a_click_on_a_key_below_is_that_key(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        keys = pilot.app.screen.query_one(Keys)
        place = seen(pilot.app).splitlines()[-1].index("search")
        await pilot.click(Keys, offset=(place, 0))
        await pilot.pause()
        assert isinstance(pilot.app.screen, Prompt)
        assert keys.is_attached

    played(viewer(run), script)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_leaving(run: Run, key: str) -> None:
    app = viewer(run)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not pilot.app.is_running
        assert pilot.app.return_code == 0

    played(app, script)
    assert app.failure is None


def test_ctrl_c_leaves_a_question_too(run: Run) -> None:
    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("/", "x", "ctrl+c")
        await pilot.pause()
        assert not pilot.app.is_running

    played(viewer(run), script)


def test_a_question_keeps_hostile_text_harmless(run: Run) -> None:
    made(run, "rollout", "rollouts", [trajectory(0, id=f"a{HOSTILE}")], [], number=1)

    async def script(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, ViewerApp)
        app.table.narrow(Filter(text=HOSTILE))
        await pilot.press("/")
        await pilot.pause()
        assert "␛[31mred" in seen(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "[bold]x[/bold] [/x]" in seen(app)
        assert "\x1b" not in seen(app)
        assert app.screen.query_one("#head", Facts).size.height <= 3

    played(viewer(run), script, (120, 24))
