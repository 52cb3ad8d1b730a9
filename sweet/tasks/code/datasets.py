"""Code tasks by dataset name or from a JSONL file in ColBench's schema.

A row has `problem_description`, `ground_truth`, `test_cases` (name -> call, or a list of calls) and, where it differs
from the reference, `hidden_information`; an `id` where the file brings one. What is wrong is told with its line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.tasks.base import Task
from sweet.tasks.datasets import COLBENCH_SPLITS, colbench_file
from sweet.tasks.files import Wrong, check_split, load_task_file, not_there
from sweet.tasks.micro import load as load_generated
from sweet.tasks.micro.family import FAMILIES

SPLITS = {**{name: tuple(family.splits) for name, family in FAMILIES.items()}, "colbench": COLBENCH_SPLITS}


def load(tasks: str, split: str) -> list[Task]:
    """The tasks of a dataset or file, in their order.

    Raises:
        UsageError: no such dataset, split or file, or the dataset has not been fetched.
        InputError: the file does not hold code tasks; says in which line.
    """
    check_split(tasks, split, SPLITS)
    if tasks in FAMILIES:
        return load_generated(split, FAMILIES[tasks])
    if tasks == "colbench":
        path = colbench_file(split)
        if not path.is_file():
            raise UsageError(f"ColBench's {split} split is not on this machine.", where=path, fix="sweet data colbench")
        return load_task_file(path, _fields)
    path = Path(tasks)
    if path.is_file():
        return load_task_file(path, _fields)
    raise not_there(path, SPLITS)


def _fields(row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
    """The row's tests as a task has them."""
    tests = row.get("test_cases")
    if isinstance(tests, list):
        tests = {f"test{index}": call for index, call in enumerate(tests, 1)}
    if not tests:
        raise wrong("The task has no tests.", 'add "test_cases": {"test1": "function(1, 2)", …}')
    if not isinstance(tests, dict) or not all(isinstance(call, str) and call.strip() for call in tests.values()):
        raise wrong(
            "'test_cases' must map each test's name to a call, as text.",
            'write "test_cases": {"test1": "function(1, 2)", …}',
        )
    _check_lines(row, wrong)
    return {"test_cases": tests}


def _check_lines(row: dict[str, Any], wrong: Wrong) -> None:
    """The lines that facts name must be statements of the reference."""
    from sweet.tasks.code.credit import statements

    facts = row.get("facts")
    for fact in facts if isinstance(facts, list) else []:
        line = fact.get("line") if isinstance(fact, dict) else None
        if isinstance(line, str) and line.strip() not in {one.line for one in statements(row["ground_truth"])}:
            what = f"The fact {fact.get('topic')!r} names a line that is no statement of 'ground_truth': {line!r}."
            raise wrong(what, 'correct its "line", or leave it out')
