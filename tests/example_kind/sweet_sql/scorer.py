"""Score a query by the share of databases on which it returns the reference's rows.

Query and reference run in separate children of sweet's sandbox, on a database in memory. They return rows, which are
compared here. The order of rows matters if the reference orders them; the number of equal rows always matters. NULL
equals NULL, floats agree within the tolerance, names of columns do not matter.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sweet.sandbox.pool import Sandbox
from sweet.sandbox.program import Program, Result
from sweet.sandbox.values import same
from sweet.tasks.base import NO_ANSWER, Task
from sweet.tasks.scores import AnswerScorer, JudgedTest, Verdict, nothing_delivered, tally

_SOURCE = """
import sqlite3

def rows(script, query):
    base = sqlite3.connect(":memory:")
    base.executescript(script)
    return base.execute(query).fetchmany(10_000)
"""
_FENCED = re.compile(r"```[ \t]*\w*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|--[^\n]*")
_NESTED = re.compile(r"\([^()]*\)")
_ORDERS = re.compile(r"\border\s+by\b", re.IGNORECASE)
_SHOWN = 200


class SqlScorer(AnswerScorer):
    """Runs queries in `box`."""

    def __init__(self, box: Sandbox, tolerance: float) -> None:
        super().__init__("result-sets", {"tolerance": tolerance, "sandbox": box.tier})
        self._box, self._tolerance = box, tolerance
        self._references: dict[tuple[str, ...], tuple[Result, ...]] = {}

    def verdicts(self, answers: Iterable[tuple[Task, str]]) -> Iterator[Verdict]:
        asked: deque[tuple[Task, str]] = deque()

        def programs() -> Iterator[Program]:
            for task, answer in answers:
                asked.append((task, query_in(answer)))
                yield _program(task, query_in(answer))

        for execution in self._box.stream(programs()):
            task, query = asked.popleft()
            yield self._judge(task, execution.results) if query else nothing_delivered(task)

    def _judge(self, task: Task, results: tuple[Result, ...]) -> Verdict:
        wanted = self._reference(task)
        broken = next((want for want in wanted if want.status != "value"), None)
        if broken is not None:
            return Verdict(None, 0, len(wanted), "invalid", {"why": f"the reference fails: {broken.explanation}"})
        ordered = orders(task.ground_truth)
        tests = {
            name: self._test(want, got, ordered)
            for name, want, got in zip(task.test_cases, wanted, results, strict=True)
        }
        verdict = tally(tests)
        if verdict.passed < verdict.total and any(got.status == "timeout" for got in results):
            return replace(verdict, outcome="timeout")
        return replace(verdict, outcome="error") if all(got.status == "raised" for got in results) else verdict

    def _reference(self, task: Task) -> tuple[Result, ...]:
        key = (task.ground_truth, *task.test_cases.values())
        if key not in self._references:
            (execution,) = self._box.run([_program(task, task.ground_truth, slack=5.0)])
            self._references[key] = execution.results
        return self._references[key]

    def _test(self, want: Result, got: Result, ordered: bool) -> JudgedTest:
        """Return the result on one database."""
        passed = got.status == "value" and same(_rows(want.value, ordered), _rows(got.value, ordered), self._tolerance)
        return JudgedTest(passed=passed, expected=_shown(want), got=_shown(got))


def _program(task: Task, query: str, slack: float = 1.0) -> Program:
    return Program(_SOURCE, tuple(f"rows({script!r}, {query!r})" for script in task.test_cases.values()), slack=slack)


def query_in(answer: str) -> str:
    """Return the query in an answer: its first fenced block, else all of it; empty for a missing answer."""
    if answer == NO_ANSWER:
        return ""
    fenced = _FENCED.search(answer)
    return (fenced[1] if fenced else answer).strip()


def orders(query: str) -> bool:
    """Return whether a query orders its rows: ORDER BY outside of parentheses, strings and comments."""
    bare, found = _QUOTED.sub("", query), 1
    while found:
        bare, found = _NESTED.subn(" ", bare)
    return _ORDERS.search(bare) is not None


def _rows(value: Any, ordered: bool) -> Any:
    """Return rows in the form of the sandbox's values: a list, or entries in any order."""
    return value if ordered else {"set": value}


def _shown(result: Result) -> str:
    """Return the rows as Python literals, or the error."""
    if result.status != "value":
        return f"{result.status}: {result.explanation}"[:_SHOWN]
    rows = result.value if isinstance(result.value, list) else [result.value]
    return str([tuple(row["tuple"]) if isinstance(row, dict) and "tuple" in row else row for row in rows])[:_SHOWN]
