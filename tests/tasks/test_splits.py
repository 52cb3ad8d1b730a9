"""Splits of a user's file: by its rows, or by shares that a hash of the problem decides."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
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
from sweet.tasks.splits import FEW, SPLITS, Holdout, load_split, named_splits, problem_digest

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


def digests(count: int, first: int = 0) -> list[str]:
    """As uniform as those of tasks."""
    return [hashlib.sha256(str(number).encode()).hexdigest()[:16] for number in range(first, first + count)]


def test_a_task_of_a_large_file_keeps_its_split_when_rows_are_added_removed_and_reordered() -> None:
    many, more = digests(FEW), digests(2 * FEW, 100)
    first = dict(zip(many, SHARES.splits(many), strict=True))
    second = dict(zip(reversed(more), SHARES.splits(more[::-1]), strict=True))
    both = first.keys() & second.keys()
    assert len(both) == FEW - 100
    assert all(first[digest] == second[digest] for digest in both)


@given(st.integers(5, FEW - 1), st.floats(0.05, 0.4), st.floats(0.05, 0.4), st.randoms())
def test_a_small_file_has_the_exact_shares_in_any_order(count: int, test: float, validation: float, order: Any) -> None:
    some, holdout = digests(count), Holdout(test, validation)
    found = dict(zip(some, holdout.splits(some), strict=True))
    counts = Counter(found.values())
    assert counts["test"] == max(1, round(test * count))
    assert counts["validation"] == max(1, round(validation * count))
    mixed = order.sample(some, count)
    assert dict(zip(mixed, holdout.splits(mixed), strict=True)) == found
    twice = holdout.splits([*some, *mixed])
    assert [found[digest] for digest in [*some, *mixed]] == twice, "equal problems are in one split"


@given(st.integers(5, 2 * FEW), st.floats(0.05, 0.5), st.floats(0.05, 0.4))
def test_a_larger_share_moves_no_other_task(count: int, test: float, validation: float) -> None:
    some = digests(count)
    whole = Holdout(test, validation).splits(some)
    for less, moved in ((Holdout(test / 2, validation), "test"), (Holdout(test, validation / 2), "validation")):
        pairs = zip(whole, less.splits(some), strict=True)
        assert all(after in {before, *(["train"] if before == moved else [])} for before, after in pairs)


def test_thirty_tasks_are_split_as_asked(tmp_path: Path) -> None:
    """By the hash alone they became 28, 1 and 1."""
    found = Counter(placed(tmp_path / "tasks.jsonl", [row(number) for number in range(30)], Holdout(0.2, 0.1)).values())
    assert found == {"train": 21, "validation": 3, "test": 6}
    note = load_split(KIND, str(tmp_path / "tasks.jsonl"), "test", Holdout(0.2, 0.1)).note
    assert note is not None
    assert note.endswith("A rate on fewer than 20 tasks says little.")


def test_the_shares_converge_to_what_is_asked_for() -> None:
    size = 4000
    splits = SHARES.splits([problem_digest(KIND, Task(id="t", **row(number))) for number in range(size)])
    for split, share in (("test", 0.3), ("validation", 0.2), ("train", 0.5)):
        deviation = (share * (1 - share) / size) ** 0.5
        assert abs(splits.count(split) / size - share) < 4 * deviation


def test_the_split_of_a_task_is_the_same_in_every_version() -> None:
    assert problem_digest(KIND, Task(id="t", **row(1))) == "d46c36f4862d40de"
    asked = ["4" * 16, "d46c36f4862d40de", "c0" + "0" * 14]  # 0.267, 0.830, 0.75
    assert SHARES.splits([*asked, *digests(FEW)])[:3] == ["test", "validation", "train"]


def test_what_data_frames_write_for_a_missing_value_is_none(tmp_path: Path) -> None:
    empty = dict.fromkeys(("id", "hidden_information", "specification", "facts", "part_lines", "split"))
    (task,) = load_split(KIND, write(tmp_path / "tasks.jsonl", [row(1, **empty)]), "train").tasks
    assert (task.id, task.hidden_information, task.facts, task.part_lines) == ("tasks-0000", "", (), 0)


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
    assert note is not None
    assert note.startswith(f"Tasks of {source}: 2 train, 1 validation, 1 test. These are those of the split test.")


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
