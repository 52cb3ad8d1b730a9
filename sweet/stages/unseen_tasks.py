"""Dialogues on test tasks are for evaluation: the stages that learn refuse what was made from them.

The split of dialogues is in their meta. Everything that is made of them is found by lineage, so that pairs whose critic
learned from test tasks are refused as well. `allow_test` accepts all of it. Imported dialogues have no split.

A row of dialogues has its whole task, so what was played is known even where the file of the tasks has changed since or
is gone. Tasks are compared by `problem_digest`, so the same problem is found in two files, under two ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from sweet.errors import InputError, UsageError
from sweet.hints import option, stage
from sweet.runs.jsonl import scan_jsonl
from sweet.runs.lineage import ancestors
from sweet.runs.manifest import Artifact, Kind, Manifest
from sweet.runs.run import Run
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.splits import TEST, problem_digest


def dialogues_on_test_tasks(manifest: Manifest, artifact: Artifact) -> Artifact | None:
    """Return the dialogues on test tasks that an artifact was made from, the nearest ones; None if there are none."""
    rollouts = (source for source in ancestors(manifest, artifact) if source.kind == "rollouts")
    return next((source for source in rollouts if RolloutsMeta.of(source).split == TEST), None)


def newest_to_learn(run: Run, kind: Kind, named: str | None, *, allow_test: bool, needed_by: str) -> Artifact:
    """Return the scores or rollouts to learn from: those that are named, else the newest not on test tasks.

    Args:
        allow_test: accept those on test tasks; without a name only if there are no others.

    Raises:
        UsageError: there are none, or only on test tasks.
    """
    named = named or run.read_instead(kind)
    if named is None:
        manifest = run.manifest()
        newest = reversed(manifest.of_kind(kind, "done"))
        named = next((artifact.id for artifact in newest if dialogues_on_test_tasks(manifest, artifact) is None), None)
    artifact = run.find(kind, named, needed_by=needed_by)
    check_not_test(run, [artifact], allow=allow_test, needed_by=needed_by)
    return artifact


def check_not_test(run: Run, inputs: Iterable[Artifact], *, allow: bool, needed_by: str) -> None:
    """Check that nothing is learned from dialogues on test tasks.

    Raises:
        UsageError: an input was made from such dialogues, and `allow` is False.
    """
    if allow:
        return
    manifest = run.manifest()
    for artifact in inputs:
        rollouts = dialogues_on_test_tasks(manifest, artifact)
        if rollouts is not None:
            which = "are" if artifact.id == rollouts.id else f"was made from {rollouts.id},"
            raise UsageError(
                f"{needed_by} would learn from test tasks: {artifact.id} {which} dialogues of the split {TEST}, on "
                f"which an actor could then not be measured. {option('allow_test')} accepts them.",
                where=run.file(artifact),
                fix=stage("rollout", run.path),
            )


def tasks_of(run: Run, rollouts: Artifact) -> Iterator[Task]:
    """Yield each task of the dialogues once.

    Raises:
        InputError: the file does not exist or is damaged, or a task in it is invalid.
    """
    seen_ids: set[str] = set()
    path = run.file(rollouts)
    for number, row in enumerate(scan_jsonl(path), 1):
        task = row.get("task")
        if isinstance(task, Mapping) and task.get("id") in seen_ids:
            continue
        try:
            parsed = Task.model_validate(task)
        except ValidationError as error:
            raise InputError("The row's task is invalid.", path=path, line=number) from error
        seen_ids.add(parsed.id)
        yield parsed


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
