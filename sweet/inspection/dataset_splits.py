"""Whether the tasks that dialogues were played on have a split for training and one for testing."""

from __future__ import annotations

from collections.abc import Callable

from sweet.errors import SweetError
from sweet.runs.manifest import Artifact, Manifest
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import TEST, TRAIN, Holdout, load_split, names_no_split


def splits_of(manifest: Manifest) -> Callable[[Artifact], bool]:
    """Return a function that reads the dataset of dialogues of this run."""

    def has_splits(rollouts: Artifact) -> bool:
        meta = RolloutsMeta.of(rollouts)
        holdout = Holdout(meta.holdout, meta.holdout_validation)
        try:
            kind = task_kind(manifest.task)
            source = meta.tasks or kind.default_tasks()
            if not holdout.given and names_no_split(kind, source):
                return False
            return all(load_split(kind, source, split, holdout).tasks for split in (TRAIN, TEST))
        except SweetError:  # it is not on this machine, or has other splits
            return False

    return has_splits
