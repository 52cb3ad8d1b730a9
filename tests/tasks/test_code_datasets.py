"""Task files in ColBench's schema: accepted rows, and the errors of invalid files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import InputError, UsageError
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.files import task_lines
from sweet.tasks.packaged import PACKAGED

ROW: dict[str, Any] = {
    "problem_description": "Double it. def twice(x)",
    "ground_truth": "def twice(x):\n    return 2 * x",
    "test_cases": {"test1": "twice(1)", "test2": "twice(2)"},
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def load(path: Path) -> list[Any]:
    return CodeKind().load(str(path), "train")


def test_rows_without_ids_get_one_from_the_file_and_their_index(tmp_path: Path) -> None:
    tasks = load(write(tmp_path / "mine.jsonl", ROW, {**ROW, "id": "named"}, ROW))
    assert [task.id for task in tasks] == ["mine-0000", "named", "mine-0002"]
    assert tasks[0].hidden == ROW["ground_truth"]


def test_whole_numbers_are_ids_and_nought_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", {**ROW, "id": 0}, {**ROW, "id": 1}, {**ROW, "id": ""})
    assert [task.id for task in load(path)] == ["0", "1", "mine-0002"]
    assert task_lines(path) == {"0": 1, "1": 2, "mine-0002": 3}
    with pytest.raises(InputError, match="'0' is already used in line 1"):
        load(write(tmp_path / "twice.jsonl", {**ROW, "id": 0}, {**ROW, "id": "0"}))


def test_a_test_that_a_table_lacks_is_none(tmp_path: Path) -> None:
    """Tables, as those of Hugging Face's datasets, give every row the keys of all rows."""
    tests = [{"one": "twice(1)", "two": None}, {"one": None, "two": "twice(2)"}]
    tasks = load(write(tmp_path / "a.jsonl", *({**ROW, "test_cases": cases, "split": None} for cases in tests)))
    assert [task.test_cases for task in tasks] == [{"one": "twice(1)"}, {"two": "twice(2)"}]


def test_tests_may_be_a_list(tmp_path: Path) -> None:
    (task,) = load(write(tmp_path / "a.jsonl", {**ROW, "test_cases": ["twice(1)", "twice(2)"]}))
    assert task.test_cases == {"test1": "twice(1)", "test2": "twice(2)"}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({**ROW, "test_cases": {}}, "no tests"),
        ({**ROW, "test_cases": []}, "no tests"),
        ({key: value for key, value in ROW.items() if key != "test_cases"}, "no tests"),
        ({**ROW, "test_cases": {"test1": 3}}, "test_cases"),
        ({**ROW, "test_cases": "twice(1)"}, "test_cases"),
        ({**ROW, "ground_truth": ""}, "ground_truth"),
        ({**ROW, "ground_truth": ["x"]}, "ground_truth"),
        ({**ROW, "problem_description": None}, "problem_description"),
        ({"ground_truth": "x", "test_cases": {"a": "b()"}}, "problem_description"),
        ({**ROW, "hidden_information": 7}, "hidden_information"),
        ({**ROW, "id": 1.5}, "id"),
        ({**ROW, "id": True}, "id"),
        ({**ROW, "id": False}, "id"),
        ({**ROW, "test_cases": {"test1": None}}, "no tests"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line(tmp_path: Path, row: dict[str, Any], what: str) -> None:
    path = write(tmp_path / "a.jsonl", ROW, row)
    with pytest.raises(InputError, match=what) as caught:
        load(path)
    assert caught.value.line == 2
    assert caught.value.fix


def test_broken_json_in_line_7(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *[ROW] * 6, '{"problem_description": ', ROW)
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.line == 7


def test_an_id_is_used_only_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {**ROW, "id": "x"}, {**ROW, "id": "x"})
    with pytest.raises(InputError, match="already used in line 1"):
        load(path)


def test_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        load(write(tmp_path / "a.jsonl"))


def test_a_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "tasks.jsonl", ROW)
    with pytest.raises(InputError) as caught:
        load(tmp_path / "task.jsonl")
    assert "tasks.jsonl" in str(caught.value.fix)
    with pytest.raises(InputError) as caught:
        CodeKind().load("mirco", "train")
    assert caught.value.fix == "write micro"


def test_a_folder_is_not_a_task_file(tmp_path: Path) -> None:
    write(tmp_path / "tasks.jsonl", ROW)
    with pytest.raises(InputError, match="folder") as caught:
        load(tmp_path)
    assert "tasks.jsonl" in str(caught.value.fix)


def test_colbench_must_be_downloaded_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_DATA", str(tmp_path))
    assert CodeKind().tasks_for() == "micro"
    with pytest.raises(UsageError) as caught:
        CodeKind().load("colbench", "train")
    assert caught.value.fix == "sweet data colbench"
    (tmp_path / "colbench").mkdir()
    write(tmp_path / "colbench" / "train.jsonl", ROW)
    kind = CodeKind()
    assert kind.tasks_for() == kind.tasks_for("org/model") == "colbench"
    assert kind.tasks_for("org/model", scripted=True) == "micro", "its tasks have no facts to speak from"
    assert [kind.tasks_for(agent) for agent in PACKAGED] == ["micro", "micro-parts", "colbench"]
    assert len(kind.load("colbench", "train")) == 1


def test_a_missing_split_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        CodeKind().load("colbench", "tst")
    assert caught.value.fix == "--split test"
