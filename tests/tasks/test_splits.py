"""Splits of a user's file: by its rows, or by shares that a hash of the problem decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweet
from sweet.errors import InputError, UsageError
from sweet.tasks.base import Task
from sweet.tasks.code.kind import CodeKind
from sweet.tasks.html.kind import HtmlKind
from sweet.tasks.kind import TaskKind
from sweet.tasks.splits import SPLITS, Holdout, load_split, named_splits, problem_digest

KIND = CodeKind()
SHARES = Holdout(0.3, 0.2)


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "problem_description": f"Add. def add_{number}(x)",
        "ground_truth": f"def add_{number}(x):\n    return x + {number}",
        "test_cases": {"test1": f"add_{number}(1)"},
        **changes,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


def placed(path: Path, rows: list[dict[str, Any]], holdout: Holdout = SHARES) -> dict[str, str]:
    """Return the split of each reference of a file."""
    source = write(path, rows)
    found: dict[str, str] = {}
    for split in SPLITS:
        try:
            tasks = load_split(KIND, source, split, holdout).tasks
        except UsageError:  # it has none
            continue
        for task in tasks:
            assert found.setdefault(task.ground_truth, split) == split
    return found


@given(
    before=st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True),
    after=st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True),
)
def test_a_task_keeps_its_split_when_rows_are_added_removed_and_reordered(
    tmp_path_factory: pytest.TempPathFactory, before: list[int], after: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("tasks")
    first = placed(folder / "one.jsonl", [row(number) for number in before])
    second = placed(folder / "two.jsonl", [row(number, id=f"renamed-{number}") for number in after])
    assert len(first) == len(before)
    assert len(second) == len(after)
    assert all(second[task] == split for task, split in first.items() if task in second)


@given(st.integers(0, 10**6), st.floats(0.05, 0.5), st.floats(0.05, 0.4))
def test_a_larger_share_moves_no_other_task(number: int, test: float, validation: float) -> None:
    digest = problem_digest(KIND, Task(id="t", **row(number)))
    small = Holdout(test, validation).split_of(digest)
    assert Holdout(test / 2, validation).split_of(digest) in {small, *(["train"] if small == "test" else [])}
    assert Holdout(test, validation / 2).split_of(digest) in {small, *(["train"] if small == "validation" else [])}


def test_the_shares_converge_to_what_is_asked_for() -> None:
    size = 4000
    digests = [problem_digest(KIND, Task(id="t", **row(number))) for number in range(size)]
    splits = [SHARES.split_of(digest) for digest in digests]
    for split, share in (("test", 0.3), ("validation", 0.2), ("train", 0.5)):
        deviation = (share * (1 - share) / size) ** 0.5
        assert abs(splits.count(split) / size - share) < 4 * deviation


def test_the_split_of_a_task_is_the_same_in_every_version() -> None:
    assert problem_digest(KIND, Task(id="t", **row(1))) == "d46c36f4862d40de"
    assert SHARES.split_of("4" * 16) == "test"  # 0.267
    assert SHARES.split_of("d46c36f4862d40de") == "validation"  # 0.830
    assert SHARES.split_of("c0" + "0" * 14) == "train"  # 0.75


def test_the_same_problem_under_other_ids_requests_and_spaces_is_in_one_split(tmp_path: Path) -> None:
    same = [row(n, id=f"a{n}") for n in range(12)]
    same += [row(n, id=f"b{n}", problem_description=f"Please write add_{n}.") for n in range(12)]
    same += [row(n, id=f"c{n}", ground_truth=f"def add_{n}(x):\n\n    return x + {n}\n") for n in range(12)]
    source = write(tmp_path / "tasks.jsonl", same)
    numbers = [{task.id[1:] for task in load_split(KIND, source, split, SHARES).tasks} for split in SPLITS]
    assert [len(names) * 3 for names in numbers] == [
        len(load_split(KIND, source, split, SHARES).tasks) for split in SPLITS
    ]
    assert sum(map(len, numbers)) == len(set.union(*numbers)) == 12


def test_two_problems_with_the_same_answer_differ_where_the_answer_is_not_the_problem() -> None:
    class Quiz(CodeKind):
        problem = TaskKind.problem

    one = Task(id="1", problem_description="Is 7 prime?", ground_truth="yes")
    two = Task(id="2", problem_description="Is 11 prime?", ground_truth="yes")
    assert problem_digest(Quiz(), one) != problem_digest(Quiz(), two)
    assert problem_digest(KIND, one) == problem_digest(KIND, two) == problem_digest(HtmlKind(), one)


def test_rows_may_name_their_split(tmp_path: Path) -> None:
    rows = [row(1, split="train"), row(2, split="test"), row(3, split="train"), row(4, split="validation")]
    source = write(tmp_path / "tasks.jsonl", rows)
    found = {split: [task.id for task in load_split(KIND, source, split).tasks] for split in SPLITS}
    assert found == {"train": ["tasks-0000", "tasks-0002"], "validation": ["tasks-0003"], "test": ["tasks-0001"]}
    note = load_split(KIND, source, "test").note
    assert note == f"Tasks of {source}: 2 train, 1 validation, 1 test. These are those of the split test."


def test_a_row_without_a_split_among_rows_with_one_is_an_error(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(1, split="test"), row(2), row(3, split="test")])
    with pytest.raises(InputError, match="no 'split'") as error:
        load_split(KIND, source, "test")
    assert error.value.line == 2


@pytest.mark.parametrize(
    ("split", "fix"), [("tests", 'write "split": "test"'), (3, 'correct "split", or remove it from all rows')]
)
def test_an_unknown_split_of_a_row_is_an_error(tmp_path: Path, split: Any, fix: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(row(1, split="train")) + "\n\n" + json.dumps(row(2, split=split)) + "\n")
    with pytest.raises(InputError, match="must be train, validation or test") as error:
        load_split(KIND, str(path), "train")
    assert (error.value.line, error.value.fix) == (3, fix)


def test_a_file_without_splits_is_all_of_the_split_that_is_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(1), row(2, split=None)])
    assert load_split(KIND, source, "train").note is None
    chosen = load_split(KIND, source, "test")
    assert len(chosen.tasks) == 2
    assert chosen.note == f"{source} has no splits: all of its tasks (2) count as test."
    assert named_splits(Path(source), chosen.tasks) is None


def test_shares_are_refused_where_the_splits_are_given(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(1, split="train"), row(2, split="test")])
    with pytest.raises(UsageError, match='name their "split"') as error:
        load_split(KIND, source, "train", Holdout(test=0.5))
    assert error.value.where == "--holdout"
    with pytest.raises(UsageError, match="micro has splits of its own") as error:
        load_split(KIND, "micro", "test", Holdout(validation=0.5))
    assert error.value.where == "--holdout-validation"


def test_shares_leave_tasks_to_train_on(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(1)])
    with pytest.raises(UsageError, match="leave no tasks to train on"):
        load_split(KIND, source, "train", Holdout(0.6, 0.4))


def test_a_split_without_tasks_is_an_error_that_says_which_have_some(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(1, split="train"), row(2, split="train")])
    with pytest.raises(UsageError, match="no task of the split test; it has 2 train") as error:
        load_split(KIND, source, "test")
    assert error.value.fix == 'rows with "split": "test"'
    source = write(tmp_path / "few.jsonl", [row(1)])
    held = Holdout(1e-6)
    assert len(load_split(KIND, source, "train", held).tasks) == 1
    with pytest.raises(UsageError, match="it has 1 train") as error:
        load_split(KIND, source, "test", held)
    assert "a larger --holdout" in str(error.value.fix)


def test_programs_load_a_split_of_a_file(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(n) for n in range(12)])
    found = [sweet.load_tasks(source, split=split, holdout=0.3, holdout_validation=0.2) for split in SPLITS]
    assert found == [load_split(KIND, source, split, SHARES).tasks for split in SPLITS]
    assert len(sweet.load_tasks(source)) == 12


def test_a_file_has_no_other_splits(tmp_path: Path) -> None:
    source = write(tmp_path / "tasks.jsonl", [row(1)])
    with pytest.raises(UsageError, match="no split 'tests'") as error:
        load_split(KIND, source, "tests")
    assert error.value.fix == "--split test"
