"""Read tasks of any kind from JSONL files in ColBench's schema; errors name the line.

A row has `problem_description` and `ground_truth`, optionally `hidden_information`, `specification` and `id`, and the
fields that its task kind requires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweet.errors import InputError, SweetError, UsageError, first_problem
from sweet.hints import option
from sweet.paths import data_folder
from sweet.runs.jsonl import TO_JSON_LINES, read_any_rows, read_rows
from sweet.suggestions import did_you_mean, nearest
from sweet.tasks.base import SPECIFICATION, Task

Wrong = Callable[[str, str], InputError]
"""Creates the error for a row from a description of the problem and a fix."""
Fields = Callable[[dict[str, Any], Wrong], dict[str, Any]]
"""Returns the fields that a task kind derives from a row; raises an error created by `Wrong` if the row is invalid."""


def packaged_datasets(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the datasets in a folder, `NAME/SPLIT.jsonl`, ordered by name."""
    return {
        dataset.name: {file.stem: file for file in sorted(dataset.glob("*.jsonl"))}
        for dataset in sorted(folder.iterdir())
        if dataset.is_dir()
    }


def load_task_file(path: Path, fields: Fields) -> list[Task]:
    """Load the tasks of a JSONL file.

    Raises:
        InputError: a row is invalid, two rows have the same id, or there is no row.
    """
    tasks: list[Task] = []
    for _, task in read_tasks(path, fields):
        if isinstance(task, InputError):
            raise task
        tasks.append(task)
    if not tasks:
        raise InputError("The task file is empty.", path=path, fix="one JSON object a line, one line a task")
    return tasks


def read_tasks(path: Path, fields: Fields) -> Iterator[tuple[int, Task | InputError]]:
    """Yield the line and the task of each row of a JSONL file; the error in the place of a task that is invalid, or has
    the id of an earlier one.

    Raises:
        InputError: there is no such file.
    """
    lines: dict[str, int] = {}
    for number, (line, row) in enumerate(read_any_rows(path)):
        try:
            task = row if isinstance(row, InputError) else _task(path, line, row, _id_of(row, path, number), fields)
        except InputError as error:
            task = error
        if isinstance(task, Task) and (first := lines.setdefault(task.id, line)) != line:
            what = f"The id {task.id!r} is already used in line {first}."
            task = InputError(what, path=path, line=line, fix="give every task a different id, or none")
        yield line, task


def task_lines(path: Path) -> dict[str, int]:
    """Return the line of each task of a JSONL file by its id; none of other files, which a plug-in may read."""
    with suppress(SweetError):
        rows = enumerate(read_rows(path))
        return {str(_id_of(row, path, number)): line for number, (line, row) in rows}
    return {}


def _id_of(row: Mapping[str, Any], path: Path, number: int) -> Any:
    """Return the id of a row, whole numbers as text; by default one of the file's name and the row's number."""
    row_id = row.get("id")
    row_id = str(row_id) if type(row_id) is int else row_id
    return f"{path.stem}-{number:04d}" if row_id in (None, "") else row_id


def _present(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row has: in a table all rows have the same keys, and what one lacks is null."""
    return {key: value for key, value in row.items() if value is not None}


def _task(path: Path, line: int, row: dict[str, Any], name: Any, of_kind: Fields) -> Task:
    def wrong(what: str, fix: str) -> InputError:
        return InputError(what, path=path, line=line, fix=fix)

    row = _present(row)
    if isinstance(row.get("test_cases"), dict):
        row["test_cases"] = _present(row["test_cases"])
    for key in ("problem_description", "ground_truth"):
        if key not in row:
            near = nearest(key, row)
            raise wrong(f"The task has no {key!r}.", f"rename {near!r} to {key!r}" if near else f"add {key!r}")
        if not isinstance(row[key], str) or not row[key].strip():
            raise wrong(f"{key!r} must be text that is not empty.", f"give {key!r} as a JSON string")
    if not isinstance(row.get(SPECIFICATION) or "", str):
        raise wrong(f"{SPECIFICATION!r} must be text.", f"give {SPECIFICATION!r} as a JSON string, or omit it")
    kind_fields = of_kind(row, wrong)
    if not isinstance(kind_fields, dict):
        raise TypeError(f"fields returned {type(kind_fields).__name__} instead of dict")
    fields = {**row, **kind_fields, "id": name, "hidden_information": row.get("hidden_information") or ""}
    try:
        return Task.model_validate(fields)
    except ValidationError as error:
        key, what = first_problem(error)
        raise wrong(f"{key!r}: {what}.", f"correct {key!r}") from error


def check_split(tasks: str, split: str, splits: Mapping[str, Collection[str]]) -> None:
    """Check that the dataset `tasks`, if it is one of those named in `splits`, has the split.

    Raises:
        UsageError: it does not.
    """
    if tasks in splits and split not in splits[tasks]:
        raise UsageError(
            f"The dataset {tasks} has no split {split!r}.{did_you_mean(split, splits[tasks])}",
            where="--split",
            fix=option("split", nearest(split, splits[tasks]) or tuple(splits[tasks])[:4]),
        )


def not_there(path: Path, datasets: Iterable[str]) -> InputError:
    """Return the error for a path that is neither a file nor the name of a dataset.

    Some commands have an option for it, `--tasks`, and others an argument, so the fix names neither.
    """
    if path.is_dir():
        files = sorted(str(file) for file in path.glob("*.jsonl"))
        fix = f"name one of its files: {', '.join(files[:3])}" if files else f"name {TO_JSON_LINES}"
        return InputError("The task file is a folder.", path=path, fix=fix)
    beside = [str(file) for file in path.parent.glob("*.jsonl")] if path.parent.is_dir() else []
    known_names = (*datasets, *beside)
    near = nearest(str(path), known_names)
    fix = f"write {near}" if near else "name a JSONL file or a dataset"
    hint = did_you_mean(str(path), known_names) or f" Known here: {', '.join([*datasets, *beside[:3]])}."
    return InputError(f"There is no such task file or dataset.{hint}", path=path, fix=fix)


DOWNLOADED = ("colbench", "websight")
"""The datasets that a command of `sweet data` of the same name puts on this machine."""

COLBENCH_SPLITS = ("train", "test")
"""The splits of ColBench's tasks."""


def downloaded_file(dataset: str, split: str) -> Path:
    """Return the file of a split of ColBench's tasks, as the command of `sweet data` writes it."""
    return data_folder() / dataset / f"{split}.jsonl"
