"""The splits of a user's task file: which of its tasks are for training, validation and testing.

Rows of a file may name their split in the field `split`. Otherwise shares of the tasks can be held out, by a hash of
what makes a task this problem (`TaskKind.problem`): not of its id, nor of its place in the file. A task of a large file
therefore keeps its split when rows are added, removed or reordered; of a small one the shares are exact, and tasks at
their borders may move. Rows that are the same problem are in the same split. A file
with neither has one set of tasks, all of which belong to the split that is asked for. Named datasets have splits of
their own.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.errors import InputError, UsageError
from sweet.hints import option
from sweet.suggestions import did_you_mean, nearest
from sweet.tasks.base import Task
from sweet.tasks.files import task_lines
from sweet.tasks.findings import Finding
from sweet.tasks.kind import TaskKind

TRAIN, VALIDATION = "train", "validation"

TEST = "test"
"""The split whose dialogues are for evaluation only, of files and of named datasets."""

SPLITS = (TRAIN, VALIDATION, TEST)
"""The splits of a file."""

FEW = 500
"""Problems below which a share of them is exact: the hash alone gives 28, 1 and 1 of 30 where a fifth each is asked."""
LEAST_TEST = 20
"""Test tasks below which a result says little, and that is said."""


@dataclass(frozen=True)
class Holdout:
    """Shares of a file's tasks that are held out.

    Attributes:
        test, validation: shares of all tasks, None for none of them.
    """

    test: float | None = None
    validation: float | None = None

    @property
    def given(self) -> bool:
        return self.test is not None or self.validation is not None

    def splits(self, digests: Sequence[str]) -> list[str]:
        """Return the split of each task by its `problem_digest`.

        Test tasks have the lowest digests, validation tasks the highest, so that a change of one share does not move
        tasks in or out of the other. Digests, as fractions of the largest, are uniform between 0 and 1: of many tasks
        those below the share are taken, and a task keeps its split whatever is added. Of fewer than `FEW` problems
        that would be another number than was asked for: there the share is exact, and at least one.
        """
        problems = sorted({*digests})
        size = len(problems)
        test, validation = self.test or 0.0, self.validation or 0.0
        if size >= FEW:
            place = {digest: int(digest, 16) / 16 ** len(digest) for digest in problems}
            low, high = test, 1 - validation
        else:
            place = {digest: float(rank) for rank, digest in enumerate(problems)}
            low = min(_exact(test, size), size - 1)
            high = max(size - _exact(validation, size), low + 1)  # one is left for training
        return [TEST if place[d] < low else VALIDATION if place[d] >= high else TRAIN for d in digests]


def _exact(share: float, size: int) -> int:
    return max(1, round(share * size)) if share else 0


@dataclass(frozen=True)
class ChosenTasks:
    """The tasks of one split.

    Attributes:
        own: whether they are from a file, and not from a named dataset.
        note: one sentence about the splits of the file; None where there is nothing to say.
    """

    tasks: list[Task]
    own: bool = False
    note: str | None = None


def problem_digest(kind: TaskKind, task: Task) -> str:
    """Return a digest of what makes a task this problem, as 16 hex digits; white space does not matter."""
    texts = [" ".join(text.split()) for text in kind.problem(task)]
    return hashlib.sha256(json.dumps(texts, ensure_ascii=False).encode("utf-8", "replace")).hexdigest()[:16]


def load_split(kind: TaskKind, source: str, split: str | None, holdout: Holdout | None = None) -> ChosenTasks:
    """Load the tasks of a split of a named dataset or of a file, in their order.

    Args:
        split: None for all tasks of a file, and the split train of a dataset.
        holdout: shares of the tasks of a file that are held out.

    Raises:
        UsageError: the dataset or the file has no such split, or has splits of its own and shares are given.
        InputError: there is no such file, or a row of it is invalid.
    """
    holdout = holdout or Holdout()
    _check_shares(holdout)
    path = Path(source)
    if kind.has_dataset(source) or not path.is_file():
        tasks = kind.load(source, split or TRAIN)
        if holdout.given:
            what = f"The dataset {source} has splits of its own; shares are held out of the tasks of a file."
            share = _share_option(holdout)
            raise UsageError(what, where=share, fix=f"omit {share}, or --tasks FILE.jsonl")
        return ChosenTasks(tasks)
    if split is None:
        return ChosenTasks(kind.load(source, TRAIN), own=True)
    if split not in SPLITS:
        raise UsageError(
            f"A file has no split {split!r}.{did_you_mean(split, SPLITS)}",
            where=option("split", split),
            fix=option("split", nearest(split, SPLITS) or SPLITS),
        )
    tasks = kind.load(source, split)
    named = named_splits(path, tasks)
    if named is not None and holdout.given:
        what = f'The rows of {path} name their "split", so no share of them can be held out.'
        share = _share_option(holdout)
        raise UsageError(what, where=share, fix=f'omit {share}, or remove "split" from the rows')
    if named is None and not holdout.given:
        note = f"{path} has no splits: all of its tasks ({len(tasks)}) count as {split}."
        return ChosenTasks(tasks, own=True, note=None if split == TRAIN else note)
    splits = named or holdout.splits([problem_digest(kind, task) for task in tasks])
    return _of_split(path, tasks, splits, split, holdout)


def names_no_split(kind: TaskKind, source: str) -> bool:
    """Return whether tasks are from a file whose rows name no split.

    Raises:
        InputError: a row of the file is invalid.
    """
    path = Path(source)
    if kind.has_dataset(source) or not path.is_file():
        return False
    return named_splits(path, kind.load(source, TRAIN)) is None


def named_splits(path: Path, tasks: Sequence[Task]) -> list[str] | None:
    """Return the splits that the rows of a file name, in their order; None if no row does.

    A row without a split among rows that have one is an error, and not a training task: it may be meant for testing,
    and once it is trained on, this cannot be undone.

    Raises:
        InputError: a row names no split, and others do, or names an unknown one; names the line.
    """
    for fault in split_faults(tasks):
        raise InputError(f"{fault.what}.", path=path, line=task_lines(path).get(fault.task_id), fix=fault.fix)
    return [split for task in tasks if (split := _split_of(task)) is not None] or None


def split_faults(tasks: Sequence[Task]) -> Iterator[Finding]:
    """Yield a finding for each task without a split among tasks with one, and for each with an unknown one."""
    splits = {task.id: _split_of(task) for task in tasks}
    for name, split in splits.items() if any(split is not None for split in splits.values()) else ():
        if split is None:
            fix = f'add "split": "{TRAIN}", or another of {", ".join(SPLITS)}'
            yield Finding(name, "invalid", "The task has no 'split', and other rows of the file do", fix, unusable=True)
        elif split not in SPLITS:
            near = nearest(split, SPLITS) if isinstance(split, str) else None
            what = f"'split' must be {', '.join(SPLITS[:-1])} or {SPLITS[-1]}, not {split!r}"
            fix = f'write "split": "{near}"' if near else 'correct "split", or remove it from all rows'
            yield Finding(name, "invalid", what, fix, unusable=True)


def _split_of(task: Task) -> Any:
    return (task.model_extra or {}).get("split")


def _of_split(path: Path, tasks: Sequence[Task], splits: Sequence[str], split: str, holdout: Holdout) -> ChosenTasks:
    counts = Counter(splits)
    numbers = ", ".join(f"{counts[name]} {name}" for name in SPLITS if counts[name])
    chosen = [task for task, name in zip(tasks, splits, strict=True) if name == split]
    if not chosen:
        raise UsageError(
            f"{path} has no task of the split {split}; it has {numbers}.",
            where=option("split", split),
            fix=_more_of(split, holdout),
        )
    note = f"Tasks of {path}: {numbers}. These are those of the split {split}."
    if split == TEST and len(chosen) < LEAST_TEST:
        note += f" A rate on fewer than {LEAST_TEST} tasks says little."
    return ChosenTasks(chosen, own=True, note=note)


def _more_of(split: str, holdout: Holdout) -> str:
    if not holdout.given:
        return f'rows with "split": "{split}"'
    if split == TRAIN:
        return "a smaller --holdout or --holdout-validation, or more tasks"
    field = "holdout" if split == TEST else "holdout_validation"
    return f"a larger {option(field)}, or more tasks"


def _check_shares(holdout: Holdout) -> None:
    if (holdout.test or 0.0) + (holdout.validation or 0.0) >= 1:
        raise UsageError(
            "The shares that are held out leave no tasks to train on.",
            where=f"{option('holdout', holdout.test)} {option('holdout_validation', holdout.validation)}",
            fix="--holdout 0.2 --holdout-validation 0.1",
        )


def _share_option(holdout: Holdout) -> str:
    """Name the first share that is given."""
    return option("holdout_validation" if holdout.test is None else "holdout")
