"""The unit tests of a trajectory: the calls of the task, and the result of each in the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from sweet.tasks.scores import JudgedTest
from sweet.view.records import Record
from sweet.view.terminal import NARROW, VERDICTS
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


@dataclass(frozen=True)
class UnitTestTable:
    """One row per test: verdict, call, expected and got.

    On a narrow terminal, or if the score has only descriptions, the result is shown below the call.
    """

    tests: Sequence[UnitTest]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        longest = max((len(test.call) for test in self.tests), default=0)
        room = options.max_width >= max(NARROW, 2 * longest)
        yield self._columns() if room and all(test.got for test in self.tests) else self._lines()

    def _columns(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        for name in ("call", "expected", "got"):
            table.add_column(name, overflow="fold")
        for test in self.tests:
            texts = (test.call, test.expected, test.got)
            table.add_row(_verdict(test), *(Text(printable_line(text)) for text in texts))
        return table

    def _lines(self) -> Table:
        table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1, 0, 0))
        for test in self.tests:
            body = Text(printable_line(test.call))
            if result := test.failure or (f"got {test.got}" if test.got else ""):
                body.append(f"\n{printable_line(result)}", style="dim")
            table.add_row(_verdict(test), body)
        return table


def _verdict(test: UnitTest) -> Text:
    verdict, style = VERDICTS[test.passed]
    return Text(verdict, style=style)
