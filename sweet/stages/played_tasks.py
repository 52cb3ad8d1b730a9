"""The tasks of the dialogues of a run, by their content.

A row of dialogues has its whole task, so what was played is known even where the file of the tasks has changed since or
is gone. Tasks are compared by `problem_digest`, so the same problem is found in two files, under two ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError

from sweet.errors import InputError, UsageError
from sweet.hints import option
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.splits import problem_digest


def tasks_of(run: Run, rollouts: Artifact) -> Iterator[Task]:
    """Yield each task of the dialogues once.

    Raises:
        InputError: the file does not exist or is damaged, or a task in it is invalid.
    """
    found: set[str] = set()
    path = run.file(rollouts)
    for number, row in enumerate(scan_jsonl(path), 1):
        task = row.get("task")
        if isinstance(task, Mapping) and task.get("id") in found:
            continue
        try:
            read = Task.model_validate(task)
        except ValidationError as error:
            raise InputError("The row's task is invalid.", path=path, line=number) from error
        found.add(read.id)
        yield read


def check_unplayed(run: Run, kind: TaskKind, tasks: Sequence[Task], split: str) -> None:
    """Check that no dialogue of the run is on one of these tasks of a file, as a task of another split.

    Raises:
        UsageError: one is; what was learned from its split could then not be measured on unseen tasks.
        InputError: a file of dialogues is damaged.
    """
    digests = {problem_digest(kind, task) for task in tasks}
    for rollouts in run.manifest().of_kind("rollouts"):
        other = RolloutsMeta.of(rollouts).split
        if other in (None, split) or not run.file(rollouts).is_file():
            continue
        again = sum(problem_digest(kind, task) in digests for task in tasks_of(run, rollouts))
        if again:
            raise UsageError(
                f"The run has dialogues on {again} of these tasks as tasks of the split {other} ({rollouts.id}), and "
                f"they would now count as {split}.",
                where=option("split", split),
                fix=(
                    'in a new run, tasks with "split" in their rows, or --holdout 0.2 in each rollout; both '
                    "keep training and test tasks apart"
                ),
            )
