"""Load code tasks by dataset name, or from a JSONL file in ColBench's schema; errors name the line.

A row has `problem_description`, `ground_truth`, `test_cases` (name -> call, or a list of calls), and optionally
`hidden_information`, if it differs from the reference, `part_lines`, if the answer is built in parts, and `id`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.tasks.base import PART_LINES, Task
from sweet.tasks.datasets import COLBENCH_SPLITS, colbench_file
from sweet.tasks.files import Wrong, check_split, load_task_file, not_there
from sweet.tasks.micro import load as load_generated
from sweet.tasks.micro.family import FAMILIES

SPLITS = {**{name: tuple(family.splits) for name, family in FAMILIES.items()}, "colbench": COLBENCH_SPLITS}


def load(tasks: str, split: str) -> list[Task]:
    """Load the tasks of a dataset or file, in their order.

    Raises:
        UsageError: there is no such dataset, split or file, or the dataset has not been downloaded.
        InputError: a row of the file is not a code task; names the line.
    """
    check_split(tasks, split, SPLITS)
    if tasks in FAMILIES:
        return load_generated(split, FAMILIES[tasks])
    if tasks == "colbench":
        path = colbench_file(split)
        if not path.is_file():
            raise UsageError(f"ColBench's {split} split is not on this machine.", where=path, fix="sweet data colbench")
        return load_task_file(path, fields)
    path = Path(tasks)
    if path.is_file():
        return load_task_file(path, fields)
    raise not_there(path, SPLITS)


def fields(row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
    """Check a row's tests, and return them as a mapping."""
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
    lines = row.get(PART_LINES, 1)
    if not isinstance(lines, int) or isinstance(lines, bool) or lines < 1:
        raise wrong(
            f"{PART_LINES!r} must be a whole number above 0.", "omit it where a reply delivers the whole answer"
        )
    _check_lines(row, wrong)
    return {"test_cases": tests}


def _check_lines(row: dict[str, Any], wrong: Wrong) -> None:
    """Check that the lines of facts are statements of the reference."""
    from sweet.tasks.code.reader import statements

    facts = row.get("facts")
    written: set[str | None] = set()
    for fact in facts if isinstance(facts, list) else []:
        line = fact.get("line") if isinstance(fact, dict) else None
        written = written or {one.line for one in statements(row["ground_truth"])}
        if isinstance(line, str) and line.strip() not in written:
            what = f"The fact {fact.get('topic')!r} names a line that is not a statement of 'ground_truth': {line!r}."
            raise wrong(what, 'correct its "line", or omit it')
