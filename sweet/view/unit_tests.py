"""The unit tests of a trajectory: the calls of the task, and the result of each in the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from rich.table import Column, Table
from rich.text import Text

from sweet.tasks.scores import JudgedTest
from sweet.view.records import Record
from sweet.view.terminal import VERDICTS
from sweet.view.text import printable_line


@dataclass(frozen=True)
class UnitTest:
    """One test.

    Attributes:
        passed: None if the score does not contain it (it was not run, or was scored elsewhere).
        expected, got: the results of the reference and of the answer; empty if the score has neither.
    """

    call: str
    passed: bool | None
    expected: str = ""
    got: str = ""

    @property
    def failure(self) -> str:
        """What was wrong, in one line; empty otherwise."""
        return f"got {self.got}, expected {self.expected}" if self.passed is False and self.got else ""


def unit_tests(record: Record) -> list[UnitTest]:
    """Return the tests in the order of the task; empty if the trajectory was not scored."""
    score = record.score
    if score is None:
        return []
    results = score.detail.get("tests")
    verdicts = results if isinstance(results, dict) else {}
    overall = {0: False, score.total: True}.get(score.passed) if score.total else None
    return [_judged(call, verdicts.get(name), overall) for name, call in record.trajectory.task.test_cases.items()]


def _judged(call: str, verdict: object, overall: bool | None) -> UnitTest:
    try:
        test = JudgedTest.model_validate(verdict)
    except ValidationError:
        return UnitTest(call, overall)
    return UnitTest(call, test.passed, test.expected, test.got)


def failure_reason(record: Record) -> str:
    """Return why the answer did not pass, if the score has no results of single tests."""
    if record.score is None or record.score.detail.get("tests"):
        return ""
    return str(record.score.detail.get("why") or "")


def tests_table(tests: Sequence[UnitTest]) -> Table:
    """Return a row for each test: its verdict, its call and, if it failed, its result below the call."""
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1, 0, 0))
    for test in tests:
        body = Text(printable_line(test.call))
        if test.failure:
            body.append(f"\n{printable_line(test.failure)}", style="dim")
        table.add_row(Text(*VERDICTS[test.passed]), body)
    return table
