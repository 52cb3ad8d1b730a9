"""The screens of one dialogue and of two side by side, driven with keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from textual.pilot import Pilot

from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.runs.run import Run
from sweet.tasks.base import Task
from sweet.tasks.scores import JudgedTest
from sweet.tasks.trajectory import Trajectory, Turn, Usage, dump
from sweet.view.app.dialogue_screen import DialogueScreen
from sweet.view.app.parts_view import OPEN, Drawn
from sweet.view.app.viewer_app import ViewerApp
from sweet.view.pairs import Pair as TwoDialogues
from sweet.view.viewer import ViewConfig
from tests.view.app.conftest import NARROW, WIDE, Snapshot, played, seen
from tests.view.conftest import HOSTILE, made, trajectory

SIZES = [WIDE, NARROW]


class Host(ViewerApp):
    """The application, in which a dialogue was opened."""

    def __init__(self, run: Run, at: int = 0, *, hidden: bool = False) -> None:
        super().__init__(run, ViewConfig(hidden=hidden))
        self.first = DialogueScreen(self.viewer.rows(), at, self.viewer.a, hidden=hidden)

    async def on_mount(self) -> None:
        await self.push_screen(self.first)


def messages(host: Host) -> list[str]:
    return [str(notification.message) for notification in host._notifications]


ASKED = "**What** is the *rate*?\n\n1. By day, or by the week, or in another way?\n2. See [this](http://x)"
CODE = "```python\ndef fee(days):\n    return {} * days\n```"


def fee(task: Task, number: int) -> Trajectory:
    """Markdown, a thought, code; in all but the first a further question, in the last a fault."""
    final = Turn(role="assistant", content=f"I WANT TO ANSWER:\n{CODE.format(number + 1)}", finish_reason="length")
    turns = [
        Turn(role="user", content=task.problem_description),
        Turn(role="assistant", content=ASKED, output=f"I should ask.\nOUTPUT: {ASKED}", token_ids=(1, 2, 3)),
        Turn(role="user", content="3 a day."),
    ]
    if number:
        turns += [Turn(role="assistant", content="Is there a minimum?"), Turn(role="user", content="Yes, 7.")]
    fault: dict[str, Any] = {"outcome": "human_error", "fault": "echo", "error": "It repeats."}
    return Trajectory(
        id=f"fee-s{number}",
        task=task,
        dialogue_history=(*turns, final),
        answer=CODE.format(number + 1),
        sample=number,
        seed=0,
        usage=Usage(prompt_tokens=120, completion_tokens=30, seconds=2.5, agent_seconds=2, human_seconds=0.5),
        **(fault if number == 2 else {}),
    )


@pytest.fixture
def ranked(tmp_path: Path) -> Run:
    """Three dialogues of one task, scored; the first ranked at two turns."""
    run = Run.create(tmp_path / "ranked", task="code")
    task = Task(
        id="fee",
        problem_description="A fee, please. The signature is: def fee(days)",
        ground_truth="def fee(days):\n    return max(3 * days, 7)",
        test_cases={"test1": "fee(1)", "test2": "fee(4)"},
    )
    rollouts = made(run, "rollout", "rollouts", [dump(fee(task, number)) for number in range(3)], [])
    tests = {
        "test1": JudgedTest(passed=False, expected="7", got="1").model_dump(),
        "test2": JudgedTest(passed=True, expected="12", got="12").model_dump(),
    }
    verdict = {
        "task_id": "fee",
        "reward": 0.5,
        "passed": 1,
        "total": 2,
        "outcome": "failed",
        "detail": {"tests": tests},
    }
    made(run, "eval", "scores", [{"id": f"fee-s{number}", **verdict} for number in range(3)], [rollouts])
    replies = [("How much a day?", 0.5), ("Who pays?", -0.25), ("Who pays?", -0.25), (ASKED.split("\n")[0], 0.125)]
    candidates = tuple(
        Candidate(text=text, advantage=value, logprob=-1.0, reference=-1.0, tokens=3) for text, value in replies
    )
    place: dict[str, Any] = {"trajectory_id": "fee-s0", "task_id": "fee", "observation": ()}
    rows = [
        CandidateRow(**place, turn=1, candidates=candidates, taken=candidates[-1]),
        CandidateRow(**place, turn=3, candidates=candidates[1:], taken=candidates[1]),
    ]
    made(run, "rank", "candidates", [row.model_dump(mode="json") for row in rows], [rollouts])
    pair = Pair(**place, id="p", turn=1, chosen=candidates[0], rejected=candidates[1])
    made(run, "pair", "pairs", [pair.model_dump(mode="json")], [run.artifact("candidates-1")])
    return run


@pytest.mark.parametrize("size", SIZES)
def test_what_the_dialogue_looks_like(ranked: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    host = Host(ranked, hidden=True)
    name = f"{size[0]}x{size[1]}"

    async def script(pilot: Pilot[Any]) -> None:
        snapshot(pilot, f"dialogue-{name}")
        await pilot.press("right_square_bracket", "c")
        snapshot(pilot, f"dialogue-candidates-{name}")
        await pilot.press("end")
        snapshot(pilot, f"dialogue-end-{name}")

    played(host, script, size)


@pytest.mark.parametrize("size", SIZES)
def test_two_dialogues_side_by_side_on_the_screen(ranked: Run, snapshot: Snapshot, size: tuple[int, int]) -> None:
    host = Host(ranked)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("s")
        assert isinstance(host.screen, DialogueScreen)
        (pair,) = host.screen.shown
        assert isinstance(pair, TwoDialogues)
        assert (pair.left.id, pair.right.id) == ("fee-s0", "fee-s1")
        snapshot(pilot, f"side-by-side-{size[0]}x{size[1]}")
        await pilot.press("end")
        snapshot(pilot, f"side-by-side-end-{size[0]}x{size[1]}")

    played(host, script, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("at", [0, 2])
def test_the_screen_shows_what_is_printed(ranked: Run, size: tuple[int, int], at: int) -> None:
    """Page by page from the top: each line of every part, drawn as it is printed."""
    host = Host(ranked, at, hidden=True)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("c")
        host.clear_notifications()
        view = host.first.view
        width = view.scrollable_content_region.width
        console = Console(width=width, color_system=None)
        with console.capture() as capture:
            for part in (one.part for one in view.views):
                if part.title:
                    console.print(part.heading(OPEN if part.kind in ("candidates", "pairs") else ""))
                console.print(Drawn(part, ""))
        wanted = [line.rstrip() for line in capture.get().splitlines()]

        def window() -> list[str]:
            area = view.region
            rows = seen(host).splitlines()[area.y : area.y + area.height]
            return [row[1 : width + 1].rstrip() for row in rows]

        found: list[str] = []
        await pilot.press("home")
        while True:
            top = view.scroll_offset.y
            found[top:] = window()
            if top >= view.max_scroll_y:
                break
            await pilot.press("pagedown")
        assert [line for line in found if line] == [line for line in wanted if line]

    played(host, script, size)


def test_keys_lead_to_the_other_dialogues(run: Run) -> None:
    host = Host(run)
    places = []

    async def script(pilot: Pilot[Any]) -> None:
        for key in ("p", "n", "n", "f", "f", "f", "p"):
            await pilot.press(key)
            places.append(host.first.position)
            assert f"{host.first.position + 1} of 6" in seen(host)
            assert host.first.current.id in seen(host)
        assert messages(host)[-1] == "no further failure"

    played(host, script)
    assert places == [0, 1, 2, 3, 4, 4, 3]


def test_the_hidden_and_the_candidates_are_shown_on_a_key(run: Run) -> None:
    host = Host(run, 1)

    async def script(pilot: Pilot[Any]) -> None:
        def has(kind: str) -> bool:
            return host.first.view.has(frozenset({kind}))

        assert not has("hidden")
        await pilot.press("h")
        assert has("hidden")
        await pilot.press("h")
        assert not has("hidden")
        assert "No idea." not in seen(host)
        await pilot.press("enter")
        assert "▾ 3 candidates" in seen(host)
        assert "No idea." in seen(host)
        await pilot.press("enter")
        assert "▸ 3 candidates" in seen(host)

    played(host, script)


def test_a_click_on_its_heading_opens_the_candidates(run: Run) -> None:
    host = Host(run, 1)

    async def script(pilot: Pilot[Any]) -> None:
        line = next(n for n, line in enumerate(seen(host).splitlines()) if "▸ 3 candidates" in line)
        await pilot.click(offset=(5, line))
        await pilot.pause()
        assert "▾ 3 candidates" in seen(host)
        assert "▸ 1 pair" in seen(host)

    played(host, script)


def test_from_turn_to_turn(ranked: Run) -> None:
    host = Host(ranked)

    async def script(pilot: Pilot[Any]) -> None:
        def top() -> str:
            return seen(host).splitlines()[3].split("  ")[0].strip()

        tops = []
        for key in ("right_square_bracket", "right_square_bracket", "left_square_bracket", "left_square_bracket"):
            await pilot.press(key)
            tops.append(top())
        assert tops[0] == "agent 1"
        assert tops[1].startswith("agent 2")
        assert tops[2] == "agent 1"
        assert messages(host)[-1] == "this is the first turn"

    played(host, script, (40, 12))


def test_no_other_dialogue_of_the_task(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    made(run, "rollout", "rollouts", [dump(trajectory(1))], [])
    host = Host(run)

    async def script(pilot: Pilot[Any]) -> None:
        await pilot.press("s")
        assert messages(host) == ["there is no other dialogue of this task"]
        assert host.screen is host.first

    played(host, script)


def test_no_text_of_a_model_is_obeyed(tmp_path: Path) -> None:
    """Neither the terminal nor Textual's markup interprets texts on any of the screens."""
    run = Run.create(tmp_path / "run", task="code")
    hostile = f"{HOSTILE} [@click=app.quit]x[/] [link=http://x]y[/link] $background"
    turns = (Turn(role="user", content=hostile), Turn(role="assistant", content=hostile, output=f"{hostile}{hostile}!"))
    task = Task(id=hostile, problem_description="p", ground_truth="g")
    rows = [
        Trajectory(id=f"{n}{hostile}", task=task, dialogue_history=turns, answer=f"{hostile}{n}", error=hostile)
        for n in range(3)
    ]
    made(run, "rollout", "rollouts", map(dump, rows), [])
    host = Host(run, hidden=True)

    async def script(pilot: Pilot[Any]) -> None:
        async def check() -> None:
            for strip in host.screen._compositor.render_strips():
                text = "".join(segment.text for segment in strip)
                assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or char == "\u202e" for char in text)
                assert cell_len(text) <= 80
                for segment in strip:
                    assert segment.style is None or segment.style.link is None
                    assert "[@click" not in str(segment.style.meta if segment.style else "")

        await check()
        assert "[@click=app.quit]x[/]" in seen(host)
        await pilot.press("end")
        await check()
        await pilot.press("s")
        await check()
        await pilot.press("end")
        await check()

    played(host, script)


def test_a_long_dialogue_opens_at_once(tmp_path: Path) -> None:
    """Twenty pages of 100 kB: long texts are folded, and the end is reached as fast as the beginning."""
    page = "<html>\n" + "".join(f'<div class="c{n}">Text <b>{n}</b></div>\n' for n in range(2800)) + "</html>"
    turns = [Turn(role="user", content="A page.")]
    for number in range(20):
        turns += [Turn(role="assistant", content=f"{number}\n{page}"), Turn(role="user", content="Not quite.")]
    task = Task(id="t", problem_description="A page.", ground_truth=page)
    run = Run.create(tmp_path / "run", task="html")
    rows = [Trajectory(id="t", task=task, dialogue_history=tuple(turns[:-1]), answer=page)]
    made(run, "rollout", "rollouts", map(dump, rows), [])
    host = Host(run)

    async def script(pilot: Pilot[Any]) -> None:
        before = time.process_time()
        await host.first.redraw()
        await pilot.press("right_square_bracket", "right_square_bracket", "end")
        assert time.process_time() - before < 2.5
        assert "▸ answer" in seen(host)
        await pilot.press("enter", "end")
        await pilot.pause()
        assert "</html>" in seen(host)

    played(host, script)


def test_thoughts_are_folded_until_they_are_asked_for(tmp_path: Path) -> None:
    """A key opens those of all turns, and leaves candidates and pairs as they are."""
    run = Run.create(tmp_path / "run", task="code")
    asked = Turn(role="assistant", content="Which?", thought=f"Hm, I wonder. {HOSTILE}", thought_tokens=12)
    history = (Turn(role="user", content="Hi."), asked, Turn(role="user", content="That."), asked)
    made(run, "rollout", "rollouts", [dump(trajectory(0, dialogue_history=history))], [])
    host = Host(run)

    async def script(pilot: Pilot[Any]) -> None:
        def shown() -> str:
            return seen(host)

        assert shown().count("▸ thought") == 2
        assert "I wonder" not in shown()
        await pilot.press("c")
        assert "I wonder" not in shown()
        await pilot.press("t")
        assert shown().count("┊ Hm, I wonder.") == shown().count("▾ thought") == 2
        assert "\x1b" not in shown()
        await pilot.press("t")
        assert "I wonder" not in shown()

    played(host, script, WIDE)
