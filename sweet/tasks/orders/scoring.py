"""Score an order by the values that it names, in any words, order and spelling of articles.

A wish is met if its value is named, and no other value of the same wish. An order that names a value of a wish that the
customer does not have is wrong too: it was guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.orders.generator import WISHES
from sweet.tasks.scores import AnswerScorer, JudgedTest, Verdict, nothing_delivered, tally

GUESSED = "nothing else"
"""The test that the order names no other wish."""


class OrderScorer(AnswerScorer):
    """Searches for the values of wishes. Its name changes with its rules."""

    def __init__(self) -> None:
        super().__init__("orders-1")

    def verdicts(self, answers: Iterable[tuple[Task, str]]) -> Iterator[Verdict]:
        for task, answer in answers:
            yield nothing_delivered(task) if answer == NO_ANSWER else tally(judged(task, answer))


def judged(task: Task, answer: str) -> dict[str, JudgedTest]:
    """Return the result of each test on an answer, by the names of the wishes."""
    words = _words(answer)
    tests = {}
    for name, wanted in task.test_cases.items():
        others = [value for value in _values(name) if _words(value) != _words(wanted) and _words(value) in words]
        found = [wanted] * (_words(wanted) in words) + others
        tests[name] = JudgedTest(passed=found == [wanted], expected=wanted, got=", ".join(found) or "nothing")
    rest = [value for name in WISHES if name not in task.test_cases for value in _values(name)]
    guessed = [value for value in rest if _words(value) in words]
    tests[GUESSED] = JudgedTest(passed=not guessed, expected="nothing", got=", ".join(guessed) or "nothing")
    return tests


def _values(name: str) -> tuple[str, ...]:
    return WISHES[name].values if name in WISHES else ()


@cache
def _words(text: str) -> str:
    """Return the words of a text between spaces, without an article or possessive at its beginning."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words[1:] if len(words) > 1 and words[0] in ('a', 'an', 'the', 'my') else words)} "
