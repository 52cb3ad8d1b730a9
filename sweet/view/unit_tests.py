"""The unit tests of a trajectory, from the detail of its score.

What a scorer tells of each test is its own affair, and scores may have been made elsewhere; so everything is read with
care, and what is missing is left empty. Where nothing is told, the calls are still known from the task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweet.view.records import Record

VALUE_CHARACTERS = 400
"""Length to which a shown value is cut."""


@dataclass(frozen=True)
class UnitTest:
    """One test; `passed` is None where nobody told."""

    name: str
    call: str
    passed: bool | None
    expected: str = ""
    got: str = ""
    error: str = ""


def unit_tests(record: Record) -> list[UnitTest]:
    """The tests in the order of the score's detail; none where the trajectory was not scored."""
    if record.score is None:
        return []
    calls = record.trajectory.task.test_cases
    detail = record.score.detail
    told = detail.get("tests") if isinstance(detail, Mapping) else detail
    if isinstance(told, Mapping):
        named = [(str(name), entry) for name, entry in told.items()]
    elif isinstance(told, list):
        names = list(calls)
        fallback = [*names, *(f"test{number}" for number in range(len(names) + 1, len(told) + 1))]
        named = [(_name(entry, fallback[position]), entry) for position, entry in enumerate(told)]
    else:
        verdicts: dict[int | None, bool] = {0: False, record.score.total: True} if record.score.total else {}
        every = verdicts.get(record.score.passed)
        return [UnitTest(name, call, every) for name, call in calls.items()]
    return [_test(name, calls.get(name, ""), entry) for name, entry in named]


def _name(entry: Any, fallback: str) -> str:
    found = (entry.get("name") or entry.get("test")) if isinstance(entry, Mapping) else None
    return str(found) if found else fallback


def _test(name: str, call: str, entry: Any) -> UnitTest:
    if not isinstance(entry, Mapping):
        return UnitTest(name, call, entry if isinstance(entry, bool) else None)
    passed = entry.get("passed")
    return UnitTest(
        name=name,
        call=str(entry.get("call") or call),
        passed=passed if isinstance(passed, bool) else None,
        expected=_shown(entry.get("expected")),
        got=_shown(entry.get("got")),
        error=_shown(entry.get("error")),
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
