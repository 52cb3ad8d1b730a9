"""The scripted human: cues, unknown questions, and that it says nothing but facts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.humans.scripted import ScriptedHuman
from sweet.tasks.base import Fact, Message, Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.facts import UNKNOWN

TASK = Task(
    id="t",
    problem_description="Write f. The signature of the function is: def f(x)",
    ground_truth="def f(x):\n    return x * 3 + 1",
    facts=(
        Fact(topic="rate", cues=("rate", "price per"), answer="The rate is 3."),
        Fact(topic="fixed", cues=("fixed charge", "anything else"), answer="The fixed charge is 1."),
        Fact(topic="tax", cues=("tax",), answer="There is no tax."),
        Fact(topic="day", cues=("日期",), answer="星期一。"),
    ),
)


def ask(*questions: str) -> str:
    dialogue = [Message(role="user", content=TASK.problem_description)]
    for question in questions:
        dialogue += [Message(role="assistant", content=question), Message(role="user", content="…")]
    return CodeKind().scripted_reply(TASK, dialogue[:-1])


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("What is the rate?", "The rate is 3."),
        ("RATE", "The rate is 3."),
        ("What is the price\n per hour?", "The rate is 3."),
        ("Anything else?", "The fixed charge is 1."),
        ("Is there anything else, a fixed charge?", "The fixed charge is 1."),
        ("Is it accurate, or a taxi?", UNKNOWN),
        ("When do you need it?", UNKNOWN),
        ("", UNKNOWN),
        ("The tax, and the rate?", "There is no tax. The rate is 3."),
        ("Rate, tax, anything else?", "The rate is 3. There is no tax."),
        ("开始的日期是哪一天?", "星期一。"),
        ("费用rate是多少?", "The rate is 3."),
    ],
)
def test_answers_by_cues(question: str, reply: str) -> None:
    assert ask(question) == reply


def test_only_the_last_message_counts() -> None:
    assert ask("What is the rate?", "When?") == UNKNOWN
    assert ask("When?", "What is the rate?") == "The rate is 3."


@given(st.text())
def test_says_nothing_but_facts(question: str) -> None:
    reply = ask(question)
    assert reply == ask(question)
    sentences = {UNKNOWN, *(fact.answer for fact in TASK.facts)}
    assert all(f"{part.strip('.')}." in sentences for part in reply.split(". "))


def test_is_a_human() -> None:
    dialogue = [Message(role="user", content="?"), Message(role="assistant", content="What is the rate?")]
    reply = asyncio.run(ScriptedHuman(CodeKind()).reply(TASK, dialogue))
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("The rate is 3.", 0, 0)
