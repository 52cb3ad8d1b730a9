"""Code tasks by dataset name or from a JSONL file in ColBench's schema.

A row has `problem_description`, `ground_truth`, `test_cases` (name -> call, or a list of calls) and, where it differs
from the reference, `hidden_information`; an `id` where the file brings one. What is wrong is told with its line.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweet.errors import InputError, UsageError
from sweet.runs.jsonl import read_rows
from sweet.tasks.base import Task
from sweet.tasks.datasets import COLBENCH_SPLITS, colbench_file

SPLITS = {"micro": ("train", "validation", "test"), "colbench": COLBENCH_SPLITS}


def load(tasks: str, split: str) -> list[Task]:
    """The tasks of a dataset or file, in their order.

    Raises:
        UsageError: no such dataset, split or file, or the dataset has not been fetched.
        InputError: the file does not hold code tasks; says in which line.
    """
    splits = SPLITS.get(tasks)
    if splits and split not in splits:
        raise UsageError(
            f"The dataset {tasks} has no split {split!r}.", where="--split", fix=_near(split, splits, "--split ")
        )
    if tasks == "micro":
        from sweet.tasks.micro import load as load_micro

        return load_micro(split)
    if tasks == "colbench":
        path = colbench_file(split)
        if not path.is_file():
            raise UsageError(f"ColBench's {split} split is not on this machine.", where=path, fix="sweet data colbench")
        return load_file(path)
    path = Path(tasks)
    if path.is_file():
        return load_file(path)
    raise _not_there(path)


def load_file(path: Path) -> list[Task]:
    """The tasks of a JSONL file.

    Raises:
        InputError: as for `load`.
    """
    tasks: list[Task] = []
    lines: dict[str, int] = {}
    for line, row in read_rows(path):
        task = _task(path, line, row, f"{path.stem}-{len(tasks):04d}")
        if task.id in lines:
            raise InputError(
                f"The id {task.id!r} stands in line {lines[task.id]} already.",
                path=path,
                line=line,
                fix="give every task an id of its own, or none",
            )
        lines[task.id] = line
        tasks.append(task)
    if not tasks:
        raise InputError("The task file is empty.", path=path, fix="one JSON object a line, one line a task")
    return tasks


def _task(path: Path, line: int, row: dict[str, Any], default_id: str) -> Task:
    def wrong(what: str, fix: str) -> InputError:
        return InputError(what, path=path, line=line, fix=fix)

    for key in ("problem_description", "ground_truth"):
        if key not in row:
            near = difflib.get_close_matches(key, row, n=1)
            raise wrong(f"The task has no {key!r}.", f"rename {near[0]!r} to {key!r}" if near else f"add {key!r}")
        if not isinstance(row[key], str) or not row[key].strip():
            raise wrong(f"{key!r} must be text that is not empty.", f"give {key!r} as a JSON string")
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
    fields = {**row, "test_cases": tests, "id": row.get("id") or default_id}
    fields["id"] = str(fields["id"]) if isinstance(fields["id"], int) else fields["id"]
    fields["hidden_information"] = row.get("hidden_information") or ""
    try:
        return Task.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise wrong(f"{key!r}: {first['msg']}.", f"correct {key!r}") from error


def _not_there(path: Path) -> UsageError:
    if path.is_dir():
        files = sorted(str(file) for file in path.glob("*.jsonl"))
        hint = files[0] if files else "name a JSONL file"
        return InputError("The task file is a folder.", path=path, fix=f"--tasks {hint}" if files else hint)
    beside = [str(file) for file in path.parent.glob("*.jsonl")] if path.parent.is_dir() else []
    return InputError(
        "There is no such task file or dataset.", path=path, fix=_near(str(path), (*SPLITS, *beside), "--tasks ")
    )


def _near(word: str, known: tuple[str, ...], flag: str) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return flag + near[0] if near else f"{flag}{'|'.join(known[:4])}"
