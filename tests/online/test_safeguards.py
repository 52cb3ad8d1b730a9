"""What a step's dialogues show, and when that is a collapse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweet.online.safeguards import WINDOW, StepFigures, collapse, equal_groups

STEP = StepFigures(
    dialogues=64,
    reward=0.5,
    success=0.4,
    leaks=2,
    entropy_first=0.5,
    entropy_late=0.25,
    entropy_by_turn=[0.5, 0.25],
    reply_tokens=12.0,
    turns=3.0,
    limits=0.1,
)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reward": 0.2}, "the mean reward fell from 0.500 to 0.200"),
        ({"leaks": 20}, "the human leaks"),
        ({"entropy_late": 0.8}, "the entropy at later turns"),
        ({"limits": 0.7}, "end at a limit"),
    ],
)
def test_a_collapse_is_seen_once_a_whole_window_shows_it(change: dict[str, float], why: str) -> None:
    before, after = [STEP] * WINDOW, [replace(STEP, **change)] * WINDOW  # type: ignore[arg-type]
    assert collapse([*before, *after[:-1]]) is None
    found = collapse([*before, *after])
    assert found is not None
    assert why in found


@pytest.mark.quick
def test_steps_that_stay_as_they_were_or_get_better_are_no_collapse() -> None:
    better = replace(STEP, reward=0.9, leaks=0, entropy_late=0.1, limits=0.0)
    assert collapse([STEP] * 3 * WINDOW) is None
    assert collapse([*[STEP] * WINDOW, *[better] * WINDOW]) is None


def test_figures_are_read_back_from_the_record_of_a_step() -> None:
    assert StepFigures.read(STEP.record()) == STEP


def test_the_share_of_equal_groups() -> None:
    groups = {"a": ["1", "2"], "b": ["3", "4"]}
    assert equal_groups(groups, {"1": 0.0, "2": 0.0, "3": 1.0, "4": 0.5}) == 0.5
    assert equal_groups({}, {}) is None
