"""The table and the dialogue at any width, with and without colours, for any output of a model."""

from __future__ import annotations

import io
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from sweet.learn.rows import Candidate, CandidateRow, Pair
from sweet.runs.run import Run
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Turn
from sweet.view.credit_view import bar
from sweet.view.dialogue_view import DisplayOptions, dialogue
from sweet.view.records import Record
from sweet.view.viewer import ViewConfig, Viewer
from tests.view.conftest import HOSTILE, trajectory

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def drawn(renderable: RenderableType, width: int = 80, *, color: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=color, no_color=not color, color_system="truecolor" if color else None
    )
    console.print(renderable)
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_nothing_is_wider_than_the_terminal(run: Run, width: int) -> None:
    viewer = Viewer(run, ViewConfig(hidden=True))
    for renderable in (viewer.table(), viewer.dialogue("t001")):
        assert max(cell_len(line) for line in drawn(renderable, width).splitlines()) <= width


def test_the_table_shows_all_and_what_matters_on_a_narrow_terminal(run: Run) -> None:
    table = Viewer(run, ViewConfig()).table()
    wide, narrow = drawn(table, 100), drawn(table, 40)
    assert "rollouts-1" in wide
    assert "scores-1" in wide
    for word in ("t001", "failed", "0.50", "1/2", "101", "1.5"):
        assert word in wide
    for word in ("t001", "failed", "0.50"):
        assert word in narrow
    assert "seconds" not in narrow


def test_the_dialogue_shows_all(run: Run) -> None:
    text = drawn(Viewer(run, ViewConfig()).dialogue("t001"), 100)
    for word in ("┊ I must ask. OUTPUT:", "Which number?", "The usual one.", "return a + 1", "3 tokens", "length"):
        assert word in text
    assert "+0.250" in text
    assert "-0.500" in text
    assert (
        text.index("3 candidates")
        < text.index("1 pair ")
        < text.index("chosen")
        < text.index("rejected")
        < text.index("\nanswer ─")
    )
    assert re.search(r"pass +add\(1\) *\n", text)
    assert re.search(r"FAIL +add\(2\) *\n +got raised .*,\s+expected 2", text)
    assert "return a + 0" not in text, "the reference is hidden"
    assert "return a + 0" in drawn(Viewer(run, ViewConfig(hidden=True)).dialogue("t001"), 100)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_long_lines_are_folded_and_never_cut(width: int) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    shown = drawn(dialogue(Record(trajectory(1, answer=f"{words}\n```python\n{words}\n```"))), width)
    assert re.sub(r"[\s│]", "", shown).count("".join(words.split())) == 2


def test_colours_only_where_there_are_some(run: Run) -> None:
    shown = Viewer(run, ViewConfig()).dialogue("t001")
    assert "\x1b" not in drawn(shown)
    coloured = drawn(shown, color=True)
    assert "\x1b[" in coloured
    assert ESCAPES.sub("", coloured) == drawn(shown), "the content does not depend on colours"


def scored(passed: int = 1, **detail: Any) -> Score:
    return Score(id="t", task_id="t", reward=0.5, passed=passed, total=2, outcome="failed", detail=detail)


def record(text: str) -> Record:
    turns = (
        Turn(role="user", content=text),
        Turn(role="assistant", content=text, output=f"{text} OUTPUT: {text}", finish_reason=text),
    )
    reply = Candidate(text=text, advantage=1.0, logprob=-1.0, reference=-2.0, tokens=1)
    place: dict[str, Any] = {"trajectory_id": "t", "task_id": "t", "turn": 1, "observation": ()}
    ranked = CandidateRow(**place, candidates=(reply,), taken=reply)
    pair = Pair(**place, id="p", chosen=reply, rejected=reply)
    found = trajectory(1, id=text or "t", dialogue_history=turns, answer=f"{text}\n```python\n{text}", error=text)
    return Record(
        found, scored(tests={"test1": {"passed": False, "expected": text, "got": text}}), {1: ranked}, {1: [pair]}
    )


@given(st.text() | st.just(HOSTILE) | st.text(st.sampled_from("[]/\\`\n\x1b\x9b\u202e=pyx")), st.integers(10, 120))
def test_no_text_of_a_model_reaches_the_terminal_as_more_than_text(text: str, width: int) -> None:
    shown = drawn(dialogue(record(text), DisplayOptions(task_kind("code"), hidden=True)), width, color=True)
    left = ESCAPES.sub("", shown)
    assert not any(unicodedata.category(char) in {"Cc", "Cf"} and char != "\n" for char in left)


@given(st.floats(-99, 99), st.floats(0, 99))
def test_a_bar_always_has_the_same_shape(value: float, scale: float) -> None:
    number, _, drawing = str(bar(value, scale)).partition(" ")
    left, right = drawing.split("│")
    assert (len(left), len(right)) == (4, 4)
    assert float(number) == pytest.approx(value, abs=1e-3)
    assert "█" not in (left if value > 0 else right)


@pytest.mark.parametrize(
    ("score", "lines"),
    [
        (scored(), ["? add(1)", "? add(2)"]),
        (scored(passed=0), ["FAIL add(1)", "FAIL add(2)"]),
        (scored(passed=2), ["pass add(1)", "pass add(2)"]),
        (
            scored(tests={"test1": {"passed": True, "expected": "1", "got": "1"}, "test2": "odd"}),
            ["pass add(1)", "? add(2)"],
        ),
        (scored(why="there is no code in the answer"), ["there is no code"]),
    ],
)
def test_what_scores_tell_of_the_tests(score: Score, lines: list[str]) -> None:
    shown = drawn(dialogue(Record(trajectory(1), score)))
    assert all(line in " ".join(shown.split()) for line in lines), shown
