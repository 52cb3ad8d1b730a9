"""A file of rows that was not finished, after a loss of power: what is damaged is made again, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from sweet.runs.damage import drop_damaged, whole_rows
from sweet.runs.jsonl import JsonlWriter, read_jsonl, sums_path


class Row(BaseModel):
    id: int
    texts: list[str]
    session: int | None = None


ROWS = [Row(id=number, texts=["spam and eggs " * (1 + number % 7)] * 3) for number in range(40)]
OTHERS = b"".join(b'{"other":%d,"texts":["spam and eggs "]}\n' % number for number in range(100))
SAID = r"rows\.jsonl: \d+ rows? damaged or missing, as a loss of power leaves a file: dropped, and their work is .*"
PLACE = st.integers(0, 10_000), st.integers(1, 3_000)

DAMAGES: dict[str, Callable[[bytes, int, int], bytes]] = {
    "torn": lambda data, at, size: data[: len(data) - size],
    "truncated": lambda data, at, size: data[:at],
    "zeros": lambda data, at, size: data[:at] + b"\0" * len(data[at : at + size]) + data[at + size :],
    "zeros at the end": lambda data, at, size: data + b"\0" * size,
    "another file's": lambda data, at, size: data[:at] + OTHERS[: len(data[at : at + size])] + data[at + size :],
    "twice": lambda data, at, size: data[: at + size] + data[at : at + size] + data[at + size :],
    "in another's place": lambda data, at, size: data[:at] + data[:size] + data[at + size :],
    "lost": lambda data, at, size: data[:at] + data[at + size :],
}


def write(path: Path, rows: list[Row]) -> None:
    with JsonlWriter(path, sums=True) as writer:
        for row in rows:
            writer.write(row)


def lost_rows(path: Path) -> int:
    """Drop the damaged rows; return how many the user is told of."""
    said: list[str] = []
    drop_damaged(path, Row, said.append)
    assert all(re.fullmatch(SAID, text) for text in said)
    return int(said[0].split()[1]) if said else 0


def goes_on(path: Path) -> int:
    """Do what a stage does that is resumed; return the number of rows that were lost."""
    lost = lost_rows(path)
    done = {row.id for row in read_jsonl(path, Row)}
    write(path, [row for row in ROWS if row.id not in done])
    return lost


@pytest.mark.parametrize("damage", DAMAGES)
@settings(max_examples=20)
@given(*PLACE)
def test_a_damaged_file_becomes_the_same_as_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, damage: str, at: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write(path, ROWS)
    whole = path.read_bytes()
    damaged = DAMAGES[damage](whole, at % len(whole), size)
    path.write_bytes(damaged)
    intact = {*damaged.split(b"\n")} & {*whole.splitlines()}
    assert {row.id for row in whole_rows(path, Row)} >= {Row.model_validate_json(line).id for line in intact}
    lost = goes_on(path)
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())
    assert lost >= len(ROWS) - len(intact), "each row that was made again was counted"
    assert goes_on(path) == 0


@settings(max_examples=40)
@given(st.data())
def test_damaged_sums_cost_work_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write(path, ROWS)
    whole, sums = path.read_bytes(), sums_path(path).read_bytes()
    damage = data.draw(st.sampled_from([*DAMAGES]))
    sums_path(path).write_bytes(DAMAGES[damage](sums, data.draw(st.integers(0, len(sums))), data.draw(PLACE[1])))
    goes_on(path)
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_without_sums_rows_are_kept_that_validate(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write(path, ROWS[:3])
    sums_path(path).unlink()
    path.write_bytes(path.read_bytes() + b'{"id":3}\n{"id":4,"texts":["spam"]}\n')
    assert lost_rows(path) == 1
    assert [row.id for row in read_jsonl(path, Row)] == [0, 1, 2, 4]
    assert lost_rows(path) == 0, "their sums are noted now"


def test_a_row_without_a_sum_was_not_written_by_this_stage(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write(path, ROWS[:3])
    spliced = path.read_bytes().replace(b"spam", b"ham ", 1)
    path.write_bytes(spliced)
    assert lost_rows(path) == 1
    assert [row.id for row in read_jsonl(path, Row)] == [1, 2]


def test_branches_whose_session_was_not_written_whole_are_dropped(tmp_path: Path) -> None:
    """The first row of a session is written last."""
    path = tmp_path / "rows.jsonl"
    write(path, [Row(id=1, texts=[], session=0), *ROWS[:1], Row(id=3, texts=[], session=2)])
    assert lost_rows(path) == 1
    assert [row.id for row in read_jsonl(path, Row)] == [1, 0]


def test_a_line_without_an_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweet.runs.damage.LONGEST_LINE", 1000)
    path = tmp_path / "rows.jsonl"
    write(path, ROWS[:3])
    path.write_bytes(path.read_bytes() + b"\0" * 10_000)
    assert lost_rows(path) > 0
    assert [row.id for row in read_jsonl(path, Row)] == [0, 1, 2]
