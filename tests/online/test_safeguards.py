"""What a step's dialogues show, and when that is a collapse."""

from __future__ import annotations

from typing import Any

import pytest

from sweet.online.safeguards import WINDOW, collapse, step_figures
from sweet.tasks.base import NO_ANSWER
from tests.learn.builders import build_trajectory

STEP: dict[str, Any] = {
    "dialogues": 64,
    "reward": 0.5,
    "success": 0.4,
    "leak_rate": 2 / 64,
    "entropy_first": 0.5,
    "entropy_late": 0.25,
    "reply_tokens": 12.0,
    "turns": 3.0,
    "limits": 0.1,
}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reward": 0.2}, "the mean reward fell from 0.500 to 0.200"),
        ({"leak_rate": 20 / 64}, "the human leaks"),
        ({"entropy_late": 0.8}, "the entropy at later turns"),
        ({"limits": 0.7}, "end at a limit"),
    ],
)
def test_a_collapse_is_seen_once_a_whole_window_shows_it(change: dict[str, float], why: str) -> None:
    before, after = [STEP] * WINDOW, [STEP | change] * WINDOW
    assert collapse([*before, *after[:-1]]) is None
    found = collapse([*before, *after])
    assert found is not None
    assert why in found


@pytest.mark.quick
def test_steps_that_stay_as_they_were_or_get_better_are_no_collapse() -> None:
    better = STEP | {"reward": 0.9, "leak_rate": 0.0, "entropy_late": 0.1, "limits": 0.0}
    assert collapse([STEP] * 3 * WINDOW) is None
    assert collapse([*[STEP] * WINDOW, *[better] * WINDOW]) is None


@pytest.mark.quick
@pytest.mark.parametrize(
    ("pages", "outcome", "answer", "limits"),
    [
        (False, "out_of_turns", "def f(): ...", 1.0),
        (True, "out_of_turns", "<html></html>", 0.0),
        (True, "out_of_turns", NO_ANSWER, 1.0),
        (True, "context_overflow", "<html></html>", 1.0),
        (True, "answered", "<html></html>", 0.0),
    ],
)
def test_the_last_turn_is_no_limit_for_a_dialogue_that_delivered_a_page(
    pages: bool, outcome: str, answer: str, limits: float
) -> None:
    dialogue = build_trajectory("a", outcome=outcome, answer=answer)
    assert step_figures([dialogue], {}, None, model_plays=False, pages=pages)["limits"] == limits


@pytest.mark.quick
def test_degrees_have_no_success() -> None:
    figures = step_figures([build_trajectory("a")], {"a": 0.9}, None, model_plays=False)
    assert (figures["reward"], figures["success"]) == (0.9, None)
