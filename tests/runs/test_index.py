"""An index holds what a list shows, and finds the line of each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import InputError
from sweet.runs.index import CANDIDATES, PAIRS, ROLLOUTS, SCORES, Index, RolloutEntry, RowEntry, ScoreEntry


def row(name: str = "a", text: str = "", **fields: Any) -> dict[str, Any]:
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": text}]
    return {"id": name, "task": {"id": "t"}, "dialogue_history": history, **fields}


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def listed(path: Path) -> list[str]:
    return [entry.id for entry in Index(path, ROLLOUTS).entries]


def test_an_entry_holds_what_a_list_shows(tmp_path: Path) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    usage = {"completion_tokens": 7, "seconds": 1.5}
    whole = row("ü", "yes", sample=3, seed=5, outcome="human_error", fault="refusal", reward=0.25, usage=usage)
    path.write_bytes(lines(row(), whole))
    first, second = Index(path, ROLLOUTS).entries
    begin = len(lines(row()))
    assert first == RolloutEntry(0, begin - 1, "a", "t", "answered", None, 0, None, None, 1, None, None)
    length = len(lines(whole)) - 1
    assert second == RolloutEntry(begin, length, "ü", "t", "human_error", "refusal", 3, 5, 0.25, 1, 7, 1.5)
    score: dict[str, Any] = {"id": "a", "outcome": "failed", "reward": None, "passed": 1, "total": 2, "detail": {}}
    path.write_bytes(lines(score))
    assert Index(path, SCORES).entries == [ScoreEntry(0, len(lines(score)) - 1, "a", "failed", None, 1, 2)]
    for form in (CANDIDATES, PAIRS):
        path.write_bytes(lines({"trajectory_id": "a"}))
        assert Index(path, form).entries == [RowEntry(0, 22, "a")]


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        ("Adds\n  two\tnumbers. ", "Adds two numbers."),
        ("x" * 160, "x" * 160),
        ("x" * 161, "x" * 159 + "…"),
        ("word " * 1000, ("word " * 32)[:159].rstrip() + "…"),
        (" " * 10_000 + "x", "…"),
    ],
)
def test_an_entry_has_the_beginning_of_the_request(tmp_path: Path, request_: str, shown: str) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines({**row(), "task": {"id": "t", "problem_description": request_}}))
    (entry,) = Index(path, ROLLOUTS).entries
    assert entry.request == shown


@pytest.mark.parametrize("damage", [b"{broken\n", b"[]\n", b"{}\n", b"\xff\n", b'{"id": 1}\n'])
def test_a_damaged_line_is_told_by_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    for content in (damage, lines(row("b")) + damage):
        path.write_bytes(lines(row("a")) + b"\n" + content)
        number = 2 + content.count(b"\n")
        with pytest.raises(InputError, match=f"line {number}"):
            Index(path, ROLLOUTS)
    path.write_bytes(lines(row("c")))
    assert listed(path) == ["c"], "mended"


def test_a_line_that_is_not_where_it_was_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rollouts-1.jsonl"
    path.write_bytes(lines(row("a"), row("b")))
    index = Index(path, ROLLOUTS)
    second = index.entries[1]
    assert json.loads(index.line(second)) == row("b")
    for content in (lines(row("b"), row("a")), lines(row("a")), b"x" * 500):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not where it was"):
            index.line(second)
    path.unlink()
    with pytest.raises(InputError, match="not where it was"):
        index.line(second)
    with pytest.raises(InputError, match="cannot be read"):
        Index(path, ROLLOUTS)
