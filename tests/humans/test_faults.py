"""What is wrong with a simulated human's reply, and what only looks like it."""

from __future__ import annotations

import pytest

from sweet.humans.faults import fault_of
from sweet.tasks.base import Message, Task
from sweet.tasks.trajectory import HumanFault

REFERENCE = """\
def fee(hours, member):
    base = 4.5 * max(hours - 1, 0)
    if member:
        return round(base * 0.8, 2)
    return base"""
TASK = Task(id="t", problem_description="A fee. The signature is: def fee(hours, member)", ground_truth=REFERENCE)
QUESTION = "Is there a discount for members, and how large is it?"


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("", "empty"),
        (" \n ...", "empty"),
        (QUESTION, "echo"),
        ("is there a discount for members - and how large is it", "echo"),
        ("I'm sorry, but I can't assist with that.", "refusal"),
        ("As an AI language model, I have no preferences.", "refusal"),
        ("Sorry, I cannot help with this request.", "refusal"),
        ("I want to answer: def fee(hours, member): return 3", "ended"),
        (f"Sure! Here it is:\n{REFERENCE}", "leaked"),
        ("base = 4.5*max(hours-1, 0), then if member: return round(base*0.8, 2)", "leaked"),
        ("Members pay 80 percent.", None),
        ("base", None),
        ("I'm sorry, I don't know that.", None),
        ("I can't say more than that the first hour is free.", None),
        ("It is 4.5 * (hours - 1), but never below zero.", None),
        ("I would like you to answer soon. It is 20 percent.", None),
    ],
)
def test_what_is_wrong(reply: str, fault: HumanFault | None) -> None:
    dialogue = [Message(role="user", content="A fee."), Message(role="assistant", content=QUESTION)]
    assert fault_of(reply, TASK, dialogue) == fault


def test_a_short_echo_is_an_answer() -> None:
    dialogue = [Message(role="assistant", content="The hours?")]
    assert fault_of("The hours.", TASK, dialogue) is None


def test_a_reference_of_one_short_line_cannot_be_leaked_by_chance() -> None:
    task = Task(id="t", problem_description="d", ground_truth="def f(x):\n    return x")
    assert fault_of("It should just return x.", task, [Message(role="assistant", content="What?")]) is None
