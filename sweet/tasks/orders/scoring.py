"""Score an order by the values that it names, in any words, order and spelling of articles.

A wish is met if its value is named, and no other value of the same wish. An order that names a value of a wish that the
customer does not have is wrong too: it was guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.orders.generator import WISHES
from sweet.tasks.scores import AnswerScorer, JudgedTest, Verdict, nothing_delivered, tally

_WORD = re.compile(r"[^\W_]+")

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
    for name, expected in task.test_cases.items():
        named = [expected] * (_words(expected) in words)
        named += [value for value in _named(name, words) if _words(value) != _words(expected)]
        tests[name] = JudgedTest(passed=named == [expected], expected=expected, got=", ".join(named) or "nothing")
    guessed = [value for name in WISHES if name not in task.test_cases for value in _named(name, words)]
    tests[GUESSED] = JudgedTest(passed=not guessed, expected="nothing", got=", ".join(guessed) or "nothing")
    return tests


def _words(text: str) -> str:
    """Return the words of a text between spaces, without an article or possessive at its beginning."""
    words = _WORD.findall(text.casefold())
    return f" {' '.join(words[1:] if len(words) > 1 and words[0] in ('a', 'an', 'the', 'my') else words)} "


def _named(name: str, words: str) -> list[str]:
    """Return the values of a wish that are named."""
    return [value for value, named in _VALUES.get(name, {}).items() if named in words]


_VALUES = {name: {value: _words(value) for value in wish.values} for name, wish in WISHES.items()}
