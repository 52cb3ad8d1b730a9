"""How the humans of two evaluations speak: the figures of replies, and a classifier that tells them apart."""

from __future__ import annotations

import pytest

from sweet.scoring.results.style import FIGURES, Speech, figures, told_apart
from sweet.tasks.base import Fact, Task
from sweet.tasks.trajectory import Trajectory, Turn


def dialogues(*replies: str, tasks: int = 12) -> Speech:
    """On each task a dialogue in which the human says this, once with its number."""
    found: Speech = {}
    for number in range(tasks):
        task = Task(id=f"t{number}", problem_description="The price of parking.", ground_truth="maximum", test_cases={})
        history = [Turn(role="user", content=task.problem_description)]
        for reply in replies:
            history += [Turn(role="assistant", content="What is the maximum?"), Turn(role="user", content=reply)]
        found[task.id] = [
            Trajectory(id=task.id, sample=0, seed=0, task=task, dialogue_history=tuple(history), outcome="answered")
        ]
    return found


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It is 5 per hour.", {"words": 4, "numbers": 1}),
        ("oh sorry, I meant 7! thanks", {"words": 5, "numbers": 1, "polite": 1, "corrections": 1}),
        ("I do not mind. Why do you ask?", {"words": 8, "sentences": 1, "questions": 1, "declines": 1}),
    ],
)
def test_figures_of_a_reply(reply: str, expected: dict[str, float]) -> None:
    marks = {"lower_case": float(reply[0].islower()), "unfinished": float(reply[-1] not in ".!?")}
    assert {name: figure(reply) for name, figure in FIGURES.items()} == dict.fromkeys(FIGURES, 0.0) | marks | expected


def test_typos_are_words_like_known_ones() -> None:
    told = dialogues("The maxinum is 7.", "Parkng costs elephants.", "It costs elephants.", "The maximum is 7.")
    found = figures(told, dialogues("The maximum is 7."))
    assert set(map(tuple, found["typos"].values())) == {(0.5,)}, "elephants are none"
    assert set(map(tuple, found["replies"].values())) == {(4.0,)}


def test_what_was_not_asked_is_told_by_its_numbers() -> None:
    facts = (
        Fact(topic="maximum", cues=("maximum",), answer="It is at most 30."),
        Fact(topic="rate", cues=("rate",), answer="It is 5 per hour."),
    )
    told = dialogues("At most 30.", "At most 30, and 5 per hour.", "I do not know.", "It is 5, of course!")
    rows = [one.model_copy(update={"task": one.task.model_copy(update={"facts": facts})}) for one in told["t0"]]
    found = figures({"t0": rows}, dialogues("No."))
    assert found["unasked"] == {"t0": [0.5]}, "the maximum was asked for, each time"


def test_a_classifier_tells_apart_who_speaks_otherwise_and_no_others() -> None:
    plain, chatty = dialogues("It is 5."), dialogues("well, it is 5 i think, is that ok?")
    apart = told_apart([figures(plain, chatty), figures(chatty, plain)])
    assert apart is not None
    assert apart.mean == 1.0
    same = told_apart([figures(plain, plain), figures(plain, plain)])
    assert same is not None
    assert same.mean == 0.5
    few = dialogues("It is 5.", tasks=9)
    assert told_apart([figures(few, few), figures(few, few)]) is None
