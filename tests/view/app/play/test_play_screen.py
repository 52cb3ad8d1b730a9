"""The screen of `sweet play`, driven with keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import KeyPanel

from sweet.rollouts.play.config import PlayConfig
from sweet.rollouts.play.interface import Action, Actions, Play, Session, Situation
from sweet.rollouts.play.stage import run_play
from sweet.rollouts.play.typed import LONGEST
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.base import Task
from sweet.tasks.registry import task_kind
from sweet.tasks.trajectory import Turn
from sweet.view.app.play import PlayApp, TextualInterface
from tests.view.app.conftest import NARROW, WIDE, Snapshot, seen, until

TASK = Task(
    id="fee",
    problem_description="A fee, please. The signature is: def fee(days)",
    ground_truth="def fee(days):\n    return max(3 * days, 7)",
)
TURNS = (Turn(role="user", content=TASK.problem_description), Turn(role="assistant", content="Is there a **minimum**?"))
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eevil"


def situation(state: Any = "yours", role: Any = "human", **changes: Any) -> Situation:
    session = Session(role, "ada", task_kind("code"), "paper", 4)
    fields = {"session": session, "state": state, "task": TASK, "number": 2, "total": 10, "turns": TURNS}
    return Situation(**{**fields, **changes})


def shown(
    tmp_path: Path, script: Callable[[Pilot[Any], PlayApp, Actions], Awaitable[None]], size: tuple[int, int] = WIDE
) -> None:
    """Run the application with a player that only takes what is done."""
    done: Actions = asyncio.Queue()

    async def play(actions: Actions) -> None:
        while (action := await actions.get()).name != "leave":
            await done.put(action)
        await done.put(action)

    async def work() -> None:
        app = PlayApp(Run.create(tmp_path / "run", task="code"), play)
        async with app.run_test(size=size, notifications=True) as pilot:
            await pilot.pause()
            await script(pilot, app, done)
        assert app.failure is None

    asyncio.run(work())


@pytest.mark.parametrize(("size", "name"), [(WIDE, "play-human"), (NARROW, "play-human-narrow")])
def test_the_human_sees_the_reference_and_the_question(
    tmp_path: Path, snapshot: Snapshot, size: tuple[int, int], name: str
) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        app.player_screen.show(situation())
        await pilot.pause(0.5)
        snapshot(app, name)
        await pilot.press("escape", "h")
        await pilot.pause()
        assert "max(3 * days" not in seen(app)

    shown(tmp_path, script, size)


def test_the_agent_does_not_see_it(tmp_path: Path, snapshot: Snapshot) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        app.player_screen.show(situation(role="agent", turns=TURNS[:1]))
        await pilot.pause(0.5)
        snapshot(app, "play-agent")
        await pilot.press("escape", "h")
        await pilot.pause()
        assert "max(3" not in seen(app)

    shown(tmp_path, script)


def test_keys_become_actions(tmp_path: Path) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        screen = app.player_screen
        screen.show(situation(role="agent", turns=TURNS[:1]))
        await pilot.pause()
        await pilot.press(*"Why q", "enter", *"?", "ctrl+s")
        assert await done.get() == Action("send", "Why q\n?")
        await pilot.press("ctrl+g")
        assert await done.get() == Action("deliver", "Why q\n?")
        await pilot.press("escape", "u")
        assert await done.get() == Action("undo")
        screen.show(situation("finished", role="agent"))
        await pilot.pause()
        await pilot.press("n")
        assert await done.get() == Action("next")
        screen.show(situation(role="agent", draft="half"))
        await pilot.pause()
        assert screen.editor.text == "half"
        await pilot.press("ctrl+q")
        assert await done.get() == Action("leave", "half")

    shown(tmp_path, script)


def test_q_hides_the_list_of_keys_before_it_leaves(tmp_path: Path) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        app.player_screen.show(situation())
        await pilot.pause()
        await pilot.press("escape", "f1")
        await pilot.pause()
        assert app.screen.query(KeyPanel)
        await pilot.press("q")
        await pilot.pause()
        assert not app.screen.query(KeyPanel)
        assert done.empty()
        await pilot.press("q")
        assert (await done.get()).name == "leave"

    shown(tmp_path, script)


def test_what_is_typed_before_the_first_message_is_text_and_a_skip_is_asked_for(tmp_path: Path) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        screen = app.player_screen
        await pilot.press(*"squ")
        screen.show(situation("waiting"))
        await pilot.pause()
        await pilot.press(*"sh")
        screen.show(situation())
        await pilot.pause()
        await pilot.press(*"!", "ctrl+s")
        assert await done.get() == Action("send", "sqush!")
        await pilot.press("escape", "s")
        await pilot.pause()
        assert "s again goes on without this dialogue" in seen(app)
        assert done.empty()
        screen.show(situation("waiting"))  # another one: it is asked for again
        await pilot.press("escape", "s")
        await pilot.pause()
        assert done.empty()
        await pilot.press("s")
        assert await done.get() == Action("skip")
        await pilot.press("ctrl+q")

    shown(tmp_path, script)


def test_what_is_not_sent_stays_while_the_other_side_thinks_of_a_notice(tmp_path: Path) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        screen = app.player_screen
        screen.show(situation())
        await pilot.pause()
        await pilot.press(*"abc", "ctrl+s")
        assert screen.editor.text == "abc"
        screen.show(situation("waiting"))
        await pilot.pause()
        assert screen.editor.text == ""

    shown(tmp_path, script)


def test_pasted_text_is_cleaned_and_bounded(tmp_path: Path) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        screen = app.player_screen
        screen.show(situation())
        await pilot.pause()
        app.post_message(Paste(HOSTILE + "\r\nsecond\0 line"))
        await pilot.pause()
        assert screen.editor.text == "[31mred]0;title evil\nsecond line"
        app.post_message(Paste("x" * 100_000))
        await pilot.pause()
        assert screen.editor.text == "[31mred]0;title evil\nsecond line"
        assert f"at most {LONGEST['human']:,}" in seen(app)

    shown(tmp_path, script)


def test_text_of_a_model_is_drawn_and_not_executed(tmp_path: Path) -> None:
    async def script(pilot: Pilot[Any], app: PlayApp, done: Actions) -> None:
        screen = app.player_screen
        hostile = Turn(role="assistant", content=HOSTILE + " [bold]markup[/bold]")
        task = TASK.model_copy(update={"id": f"t{HOSTILE}", "ground_truth": HOSTILE})
        screen.show(situation("failed", task=task, turns=(TURNS[0], hostile), notice=HOSTILE))
        await pilot.pause(0.5)
        drawn = seen(app)
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn
        assert "[bold]markup" in drawn
        assert isinstance(Text.from_ansi(drawn), Text)

    shown(tmp_path, script)


def test_a_dialogue_is_played_with_keys(tmp_path: Path) -> None:
    """The real player, the scripted human and the application."""
    run = Run.create(tmp_path / "run", task="code")

    class Driven(TextualInterface):
        def run(self, play: Play) -> None:
            app = self._app = PlayApp(run, play)
            screen = app.player_screen

            async def work() -> None:
                async with app.run_test(size=WIDE) as pilot:
                    await until(pilot, lambda: screen.situation is not None and screen.situation.state == "yours")
                    await pilot.press(*"What is the minimum?", "ctrl+s")
                    await until(pilot, lambda: screen.situation is not None and len(screen.situation.turns) == 3)
                    await pilot.press(*"def f(x): return 1", "ctrl+g")
                    await until(pilot, lambda: screen.situation is not None and screen.situation.state == "finished")
                    await pilot.press("n")
                    await until(pilot, lambda: not app.is_running or screen.situation is None)

            asyncio.run(work())
            assert app.failure is None

    config = PlayConfig(as_="agent", num_tasks=1)
    assert run_play(run, config, Silent(), Driven(run)).metrics.outcomes == {"answered": 1}
