"""Faults of a simulated human's reply, and replies that only look faulty."""

from __future__ import annotations

import asyncio

import pytest

from sweet.humans import faults
from sweet.humans.faults import fault_of
from sweet.llm.base import RequestFailed
from sweet.sandbox.reader import Reader
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
def test_faults(reply: str, fault: HumanFault | None) -> None:
    dialogue = [Message(role="user", content="A fee."), Message(role="assistant", content=QUESTION)]
    assert asyncio.run(fault_of(reply, TASK, dialogue)) == fault


def test_a_search_beyond_its_limits_fails_the_dialogue(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = faults._BOOT.replace("import serve", "import *").replace(
        "serve()", "main({'search': lambda *asked: [0 for _ in iter(int, 1)]}, CPU_SECONDS / 100, MEMORY_BYTES)"
    )
    monkeypatch.setattr(faults, "_searcher", Reader(busy, cpu_seconds=0.1))
    with pytest.raises(RequestFailed, match=r"cannot be searched .* more than 0\.1 s"):
        asyncio.run(fault_of("Members pay 80 percent.", TASK, [Message(role="assistant", content=QUESTION)]))


def test_a_short_echo_is_an_answer() -> None:
    dialogue = [Message(role="assistant", content="The hours?")]
    assert asyncio.run(fault_of("The hours.", TASK, dialogue)) is None


def test_a_reference_of_one_line_can_be_leaked() -> None:
    task = Task(id="t", problem_description="d", ground_truth="SELECT name FROM people WHERE age > 30")
    asked = [Message(role="assistant", content="Which rows?")]
    assert asyncio.run(fault_of("Try select: SELECT name FROM people WHERE age > 30;", task, asked)) == "leaked"
    assert asyncio.run(fault_of("Those of people older than 30.", task, asked)) is None


def test_a_reference_of_one_short_line_cannot_be_leaked_by_chance() -> None:
    task = Task(id="t", problem_description="d", ground_truth="def f(x):\n    return x")
    assert asyncio.run(fault_of("It should just return x.", task, [Message(role="assistant", content="What?")])) is None


PAGE = """<html><body class="bg-gray-100">
<div class="flex items-center bg-blue-500 p-4"><h1 class="text-4xl">Corner Bakery, bread since 1924</h1></div>
</body></html>"""


@pytest.mark.parametrize(
    ("reply", "leaks"),
    [
        (PAGE, True),
        ('Put it into <div class="flex items-center bg-blue-500 p-4">.', True),
        ('Put it into <div  class="flex items-center\n bg-blue-500 p-4">.', True),
        ("<h1>Bread</h1><p>Fresh</p>", True),
        ("h1 { color: #1d4ed8; font-size: 36px }", True),
        ('The title should read "Corner Bakery, bread since 1924", in white on blue.', False),
        ("The <h1> is too small: 36 px, and <b>bold</b>.", False),
        ("It is wider than 300 px < 400 px, and 5 > 3.", False),
        ("Three things {title, text, button} are missing: a blue bar at the top.", False),
        ("Write <Bakery> there, in blue (#1d4ed8).", False),
    ],
)
def test_a_page_is_leaked_by_its_source_not_by_its_words(reply: str, leaks: bool) -> None:
    task = Task(id="t", problem_description="A bakery.", ground_truth=PAGE)
    dialogue = [Message(role="assistant", content="<html><body>Bread</body></html>")]
    assert asyncio.run(fault_of(reply, task, dialogue)) == ("leaked" if leaks else None)
