"""A search finds texts in dialogues, ignoring case, and reports damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweet.errors import InputError
from sweet.runs.jsonl import encode
from sweet.tasks.trajectory import Turn, dump
from sweet.view.selection import search
from tests.view.conftest import HOSTILE, trajectory


def row(number: int, **changes: Any) -> dict[str, Any]:
    return dump(trajectory(number, **changes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """t000 … t003; each text of t001 names its field, t003 has hostile output."""
    turns = (
        Turn(role="user", content="said by the human"),
        Turn(role="assistant", content="SAID by the agent", output="thought of first. SAID by the agent"),
    )
    task = {
        "id": "x",
        "problem_description": "the request",
        "ground_truth": "return secret",
        "hidden_information": "hidden words",
        "test_cases": {"test1": "checked(1)"},
    }
    rows = [
        row(0),
        row(1, task=task, dialogue_history=turns, answer="def answered():\n    return 'größer'"),
        row(2),
        row(3, answer=HOSTILE + '"quoted" \\ back/slash'),
    ]
    file = tmp_path / "rollouts-1.jsonl"
    file.write_bytes(b"".join(encode(one) + b"\n" for one in rows))
    return file


def found(path: Path, text: str, *, hidden: bool = False) -> list[str]:
    return list(search(path, text, hidden=hidden))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("THE REQUEST", ["t001"]),
        ("said by the h", ["t001"]),
        ("said by the agent", ["t001"]),
        ("thought of first", ["t001"]),
        ("GRÖSSER", ["t001"]),
        ("GRÖßER", ["t001"]),
        ("def answered():\n", ["t001"]),
        ('"QUOTED"', ["t003"]),
        ("\\ back/slash", ["t003"]),
        ("\x1b[31m", ["t003"]),
        ("a.c", []),
        ("", ["t000", "t001", "t002", "t003"]),
        ("nowhere", []),
        ("secret", []),
    ],
)
def test_what_is_found(path: Path, text: str, ids: list[str]) -> None:
    assert found(path, text) == ids


@pytest.mark.parametrize("text", ["return SECRET", "hidden words", "checked(1)"])
def test_the_hidden_only_where_asked(path: Path, text: str) -> None:
    assert found(path, text) == []
    assert found(path, text, hidden=True) == ["t001"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.sampled_from("aAkKsSiI1/\\\"'\n\té"), max_size=12),
    st.text(st.sampled_from('aAkKsSiI 1/\\"é'), max_size=3),
    st.booleans(),
)
def test_no_line_is_passed_over_that_holds_it(tmp_path: Path, text: str, wanted: str, escaped: bool) -> None:
    line = json.dumps(row(0, answer=text), ensure_ascii=escaped)
    if escaped:
        line = line.replace("/", "\\/").replace("A", "\\u0041")
    path = tmp_path / "rows.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    if wanted.casefold() in text.casefold():
        assert found(path, wanted) == ["t000"]


def test_it_ends_when_it_is_stopped(path: Path) -> None:
    left = iter([False, False, True])
    assert list(search(path, "", stopped=lambda: next(left))) == ["t000", "t001"]


def test_damage_is_reported_and_an_incomplete_line_skipped(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "torn said by')
    assert found(path, "said by") == ["t001"]
    path.write_bytes(b"{said by}\n" + whole)
    with pytest.raises(InputError, match="line 1"):
        found(path, "said by")
    path.unlink()
    with pytest.raises(InputError, match="No such file"):
        found(path, "x")
