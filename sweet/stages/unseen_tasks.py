"""Dialogues on test tasks are for evaluation: the stages that learn refuse what was made from them.

The split of dialogues is in their meta. Everything that is made of them is found by lineage, so that pairs whose critic
learned from test tasks are refused as well. `allow_test` accepts all of it. Imported dialogues have no split.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from sweet.errors import SweetError, UsageError
from sweet.json_value import JsonValue
from sweet.runs.commands import command_of
from sweet.runs.lineage import ancestors
from sweet.runs.manifest import Artifact, Attempt, Kind, Manifest
from sweet.runs.run import Run
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, Holdout, names_no_split


def dialogues_on_test_tasks(manifest: Manifest, artifact: Artifact) -> Artifact | None:
    """Return the dialogues on test tasks that an artifact was made from, the nearest ones; None if there are none."""
    made_from = ancestors(manifest, artifact)
    return next((one for one in made_from if one.kind == "rollouts" and RolloutsMeta.of(one).split == TEST), None)


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
        newest_first = reversed(manifest.of_kind(kind, "done"))
        named = next((one.id for one in newest_first if dialogues_on_test_tasks(manifest, one) is None), None)
    found = run.find(kind, named, needed_by=needed_by)
    check_not_test(run, [found], allow=allow_test, needed_by=needed_by)
    return found


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
                "which an actor could then not be measured.",
                where=run.file(artifact),
                fix=f"{_training_dialogues(run, manifest, rollouts)}--allow-test accepts these",
            )


def _training_dialogues(run: Run, manifest: Manifest, rollouts: Artifact) -> str:
    """Return the hint at the rollout that plays the same on training tasks; empty where another program played."""
    attempt = manifest.attempt(rollouts.attempt)
    if attempt is None or attempt.stage != "rollout":
        return ""
    meta = RolloutsMeta.of(rollouts)
    settings: dict[str, JsonValue] = {"split": "train"}
    path = str(run.path)
    if meta.tasks is not None and _has_no_splits(manifest.task, meta.tasks, meta):
        settings, path = settings | {"holdout": 0.2}, "ANOTHER_RUN"
    return f"{command_of(_with(attempt, settings), path)} plays others; "


def _with(attempt: Attempt, settings: dict[str, JsonValue]) -> Attempt:
    return attempt.model_copy(update={"config": {**attempt.config, **settings}})


def _has_no_splits(task: str, tasks: str, meta: RolloutsMeta) -> bool:
    """Return whether all tasks of a file count as test tasks, so that the run cannot play them for training."""
    with suppress(SweetError):
        return not Holdout(meta.holdout, meta.holdout_validation).given and names_no_split(task_kind(task), tasks)
    return False
