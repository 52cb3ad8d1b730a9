"""The unit tests of a trajectory: the task's calls, and what the score tells of each."""

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

PASSED = "passed"
"""What an older score's detail tells of a test that passed; of another it tells in words what was wrong."""


@dataclass(frozen=True)
class UnitTest:
    """One test.

    Attributes:
        passed: None where the score does not tell (it was not run, or was scored elsewhere).
        told: what was wrong, in one line; empty where nothing was.
        expected, got: what the reference and the answer gave; empty where the score tells neither.
    """

    name: str
    call: str
    passed: bool | None
    told: str = ""
    expected: str = ""
    got: str = ""


def unit_tests(record: Record) -> list[UnitTest]:
    """The tests in the task's order; none where the trajectory was not scored."""
    if record.score is None:
        return []
    told = record.score.detail.get("tests")
    verdicts = told if isinstance(told, dict) else {}
    every = {0: False, record.score.total: True}.get(record.score.passed) if record.score.total else None
    return [
        _judged(name, call, verdicts[name]) if name in verdicts else UnitTest(name, call, every)
        for name, call in record.trajectory.task.test_cases.items()
    ]


def _judged(name: str, call: str, verdict: object) -> UnitTest:
    try:
        test = JudgedTest.model_validate(verdict)
    except ValidationError:
        passed = verdict == PASSED
        return UnitTest(name, call, passed, "" if passed else str(verdict))
    told = "" if test.passed else f"got {test.got}, expected {test.expected}"
    return UnitTest(name, call, test.passed, told, test.expected, test.got)


def why_not(record: Record) -> str:
    """Why the answer did not pass, where it is not told test by test."""
    if record.score is None or record.score.detail.get("tests"):
        return ""
    return str(record.score.detail.get("why") or "")


@dataclass(frozen=True)
class UnitTestTable:
    """A line a test: verdict, call, expected and got. With few columns for its call, or where only words are told, what
    came of it stands below."""

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
            if told := test.told or (f"got {test.got}" if test.got else ""):
                body.append(f"\n{printable_line(told)}", style="dim")
            table.add_row(_verdict(test), body)
        return table


def _verdict(test: UnitTest) -> Text:
    verdict, style = VERDICTS[test.passed]
    return Text(verdict, style=style)
