"""The unit tests of a trajectory: the task's calls, and what the score tells of each."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from sweet.tasks.scores import JudgedTest
from sweet.view.records import Record

PASSED = "passed"
"""What a score's detail tells of a test that passed; of another it tells what was wrong."""


@dataclass(frozen=True)
class UnitTest:
    """One test; `passed` is None where the score does not tell (it was not run, or was scored elsewhere)."""

    name: str
    call: str
    passed: bool | None
    told: str = ""


def unit_tests(record: Record) -> list[UnitTest]:
    """The tests in the task's order; none where the trajectory was not scored."""
    if record.score is None:
        return []
    told = record.score.detail.get("tests")
    verdicts = told if isinstance(told, dict) else {}
    every = {0: False, record.score.total: True}.get(record.score.passed) if record.score.total else None
    tests = []
    for name, call in record.trajectory.task.test_cases.items():
        verdict = verdicts.get(name)
        if verdict is None:
            tests.append(UnitTest(name, call, every))
        else:
            tests.append(_judged(name, call, verdict))
    return tests


def _judged(name: str, call: str, verdict: object) -> UnitTest:
    try:
        test = JudgedTest.model_validate(verdict)
    except ValidationError:
        passed = verdict == PASSED
        return UnitTest(name, call, passed, "" if passed else str(verdict))
    return UnitTest(name, call, test.passed, "" if test.passed else f"got {test.got}, expected {test.expected}")


def why_not(record: Record) -> str:
    """Why the answer did not pass, where it is not told test by test."""
    if record.score is None or record.score.detail.get("tests"):
        return ""
    return str(record.score.detail.get("why") or "")
