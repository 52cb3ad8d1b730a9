"""Files in the published layout: accepted files, and the errors of refused ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.foreign import read_json
from sweet.datasets.published import read_trajectories
from sweet.errors import InputError


def row(**changes: Any) -> dict[str, Any]:
    task = {
        "problem_description": "Write a function that adds. The signature is: def add(a, b)",
        "ground_truth": "def add(a, b):\n    return a + b",
        "test_cases": {"test1": "add(1, 2)", "test2": "add(0, 0)"},
        "hidden_information": "def add(a, b):\n    return a + b",
    }
    history = [
        {"role": "user", "content": task["problem_description"]},
        {"role": "agent", "content": "Integers?", "input": "<prompt>", "output": "I wonder. OUTPUT: Integers?"},
        {"role": "human_collaborator", "content": "Yes."},
        {"role": "assistant", "content": "I WANT TO ANSWER: def add(a, b): return a + b"},
    ]
    return {"task": task, "dialogue_history": history, "answer": "def add(a, b): return a + b", **changes}


def write(path: Path, rows: list[Any], *, as_list: bool = False) -> Path:
    text = json.dumps(rows, indent=1) if as_list else "".join(json.dumps(item) + "\n" for item in rows)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("as_list", [False, True])
def test_ids_are_kept_or_made_and_roles_understood(tmp_path: Path, as_list: bool) -> None:
    other = {**row()["task"], "problem_description": "Another one."}
    path = write(
        tmp_path / "offline.jsonl",
        [row(id="mine", reward=0.5), row(), row(id=17, task={**other, "id": "t-1"}), row(task=other)],
        as_list=as_list,
    )
    first, second, third, fourth = read_trajectories(path)
    assert [t.id for t in (first, second, third, fourth)] == ["mine", "offline-00001", "17", "offline-00003"]
    assert first.reward == 0.5
    assert second.reward is None
    assert [turn.role for turn in first.dialogue_history] == ["user", "assistant", "user", "assistant"]
    assert first.dialogue_history[1].said == "I wonder. OUTPUT: Integers?"
    assert first.dialogue_history[1].input == "<prompt>"
    assert first.task_id == second.task_id != fourth.task_id, "trajectories of one task are of one group"
    assert third.task_id == "t-1"


def test_tests_may_be_a_list_and_an_answer_may_be_missing(tmp_path: Path) -> None:
    task = {**row()["task"], "test_cases": ["add(1, 1)"], "hidden_information": None}
    (found,) = read_trajectories(write(tmp_path / "a.jsonl", [row(task=task, answer=None)]))
    assert found.task.test_cases == {"test1": "add(1, 1)"}
    assert found.task.hidden == task["ground_truth"]
    assert (found.answer, found.outcome) == ("No answer", "out_of_turns")


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in row().items() if name != key}


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (without("task"), "task"),
        (without("dialogue_history"), "dialogue_history"),
        (row(dialogue_history=[]), "dialogue_history"),
        (row(dialogue_history=[{"role": "system", "content": "x"}]), "dialogue_history.0.role"),
        (row(dialogue_history=[{"role": ["user"], "content": "x"}]), "dialogue_history.0.role"),
        (row(dialogue_history=[{"role": "user"}]), "dialogue_history.0.content"),
        (row(dialogue_history=[{"role": "agent", "content": "x"}]), "begin with the human's request"),
        (row(task={"ground_truth": "x"}), "task.problem_description"),
        (row(reward=True), "reward"),
        (row(reward="1"), "reward"),
        (row(reward=float("nan")), "reward"),
        (row(reward=10**400), "reward"),
        (row(id=""), "id"),
        (row(id="id-0"), "already used in line 1"),
        (row(task={**row()["task"], "id": "t", "ground_truth": "y"}), "differs"),
        (row(answer="\ud800"), "Unicode"),
        (row(task={**row()["task"], "ground_truth": "\ud800"}), "Unicode"),
        (row(answer=["x"]), "answer"),
        (row(note="\ud800"), "Unicode"),
        ([1], "JSON object"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(tmp_path: Path, wrong: Any, word: str) -> None:
    good = row(id="id-0", task={**row()["task"], "id": "t"})
    path = write(tmp_path / "rows.jsonl", [good, row(), wrong])
    with pytest.raises(InputError) as caught:
        list(read_trajectories(path))
    assert word in caught.value.what
    assert caught.value.line == 3
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "\n\n", "[]", " [ ] \n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match="no dialogue"):
        list(read_trajectories(path))


def test_no_file_a_folder_and_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}\n')
    for name in ("missing.jsonl", ".", "latin"):
        with pytest.raises(InputError):
            list(read_trajectories(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "line"),
    [("[1,\n2,\n\n3", 4), ("[1,\n2,\n oops]", 3), ("[1\n2]", 2), ("[1,\n2]\nmore", 3), ("[" * 100_000, None)],
)
def test_a_broken_list_is_refused_with_its_line(tmp_path: Path, text: str, line: int | None) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_json(path, "a list")
    assert caught.value.line == line


def test_a_list_of_rows_names_the_element(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[\n" + json.dumps(row()) + ",\n" + json.dumps(row(reward="much")) + "\n]")
    with pytest.raises(InputError, match="Element 2 of the list: reward"):
        list(read_trajectories(path))
