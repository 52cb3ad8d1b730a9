"""On how many of the tasks that score an agent it was trained, by the lineage of its training.

The agent of dialogues is looked up by its recorded name: an actor of the run, or of another run whose manifest can be
read. From an actor the lineage leads through pairs, candidates, critics, preferences and scores to the dialogues that
these were made of, and through the model that it started from to an earlier actor. So does the lineage of a critic that
chose the agent's replies. All tasks of these dialogues count as trained on, also those of which no example was drawn.

Tasks are compared by content, so the same task is found in two files, under two ids; a task of the same file whose
reference was corrected since is found by its id and request. Packaged and rule-based agents were trained on no task.
What another model has seen, such as one of the hub, is not known; as the start of a training here it counts as
untrained.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from sweet.errors import SweetError
from sweet.llm.scripted import has_model
from sweet.runs.lineage import ancestors
from sweet.runs.manifest import Artifact, Manifest
from sweet.runs.run import Run
from sweet.runs.store import NAME as MANIFEST
from sweet.scoring.results.evaluation import Evaluation
from sweet.stages.artifacts import own_actor
from sweet.stages.base import digest_of
from sweet.stages.meta import RolloutsMeta, TrainedMeta
from sweet.stages.unseen_tasks import tasks_of
from sweet.tasks.kind import TaskKind
from sweet.tasks.packaged import PACKAGED
from sweet.tasks.splits import problem_digest

_ACTOR = re.compile(r"(?:^|[/\\])actor-\d+[/\\]?$")
"""The end of the name of an actor of some run."""

TaskKeys = tuple[str, str]
"""What identifies a task: a digest of the problem, and one of its id and request in its dataset."""


class _Model(NamedTuple):
    """An artifact, with the run and the manifest that it is in."""

    run: Run
    manifest: Manifest
    artifact: Artifact


class TrainingRecord:
    """Looks up what agents were trained on. Each file of dialogues is read once.

    Args:
        kind: of the tasks.
    """

    def __init__(self, kind: TaskKind) -> None:
        self._kind = kind
        self._keys: dict[Path, dict[str, TaskKeys]] = {}

    def _tasks(self, run: Run, rollouts: Artifact) -> dict[str, TaskKeys]:
        """Return the keys of the tasks of dialogues, by id.

        Raises:
            InputError: the file does not exist or is damaged.
        """
        path = run.file(rollouts)
        if path not in self._keys:
            dataset = RolloutsMeta.of(rollouts).tasks  # its name, or the file that the tasks are from
            self._keys[path] = {
                task.id: (
                    problem_digest(self._kind, task),
                    digest_of([dataset, task.id, task.problem_description]),
                )
                for task in tasks_of(run, rollouts)
            }
        return self._keys[path]

    def count(self, run: Run, rollouts: Artifact, task_ids: Collection[str] | None = None) -> int | None:
        """Return how many of the tasks of dialogues their agent was trained on.

        Args:
            task_ids: of these tasks; None for all.

        Returns:
            None where this is not known: the agent is none whose training is recorded, or a part of the record is gone,
            and what is left of it has none of the tasks.

        Raises:
            InputError: the file of the dialogues does not exist or is damaged.
        """
        history = _History(run, rollouts)
        trained: set[str] = set()
        complete = history.complete
        for learned in history.dialogues:
            if learned.manifest.task != self._kind.name:
                continue
            try:
                learned_from = self._tasks(learned.run, learned.artifact)
            except (SweetError, OSError):
                complete = False
            else:
                trained.update(key for keys in learned_from.values() for key in keys)
        scored = self._tasks(run, rollouts).items() if trained else ()
        count = sum(not trained.isdisjoint(keys) for name, keys in scored if task_ids is None or name in task_ids)
        return count if count or complete else None


class _History:
    """What the models behind some dialogues were trained on.

    Attributes:
        dialogues: that were learned from, directly or by a critic or an earlier actor.
        complete: whether everything that was learned from is recorded.
    """

    def __init__(self, run: Run, rollouts: Artifact) -> None:
        manifest = run.manifest()
        agent = RolloutsMeta.of(rollouts).agent
        actor = _actor(run, manifest, agent, rollouts)
        self.dialogues: list[_Model] = []
        self.complete = actor is not None or (agent is not None and _is_untrained(agent))
        self._root = _Model(run, manifest, rollouts)
        waiting = [self._root, *([] if actor is None else [actor])]
        seen = set(map(_place, waiting))
        while waiting:
            for model in self._learned_by(waiting.pop()):
                if _place(model) not in seen:
                    seen.add(_place(model))
                    (waiting if model.artifact.kind == "actor" else self.dialogues).append(model)

    def _learned_by(self, model: _Model) -> Iterator[_Model]:
        """Yield the dialogues that an artifact was made from, and the actors that its models started from."""
        run, manifest, artifact = model
        for ancestor in ancestors(manifest, artifact):
            self.complete &= all(manifest.artifact(ref.id) is not None for ref in ancestor.inputs)
            if ancestor.kind == "rollouts":
                yield _Model(run, manifest, ancestor)
            elif ancestor.kind in ("critic", "actor"):
                base = TrainedMeta.of(ancestor).base
                start = _actor(run, manifest, base, ancestor)
                if start is not None:
                    yield start
                elif base is not None and _ACTOR.search(base):
                    self.complete = False


def _is_untrained(name: str) -> bool:
    """Return whether an agent was trained on no task of any dataset or file: a packaged one, and rules."""
    return name in PACKAGED or not has_model(name)


def _place(model: _Model) -> tuple[Path, str]:
    return model.run.path.absolute(), model.artifact.id


def _actor(run: Run, manifest: Manifest, name: str | None, record: Artifact) -> _Model | None:
    """Return the actor that a recorded name means, of this run or of another; None if it means no known actor."""
    if name is None or _is_untrained(name):
        return None
    elsewhere = None if Path(name).is_absolute() else _elsewhere(run, name, record.created)
    if elsewhere is not None:  # also in this run; a relative path may end as an actor of this run, and lead to another
        return elsewhere
    actor = own_actor(manifest, name, record)
    return _elsewhere(run, name, record.created) if actor is None else _Model(run, manifest, actor)


def _elsewhere(run: Run, name: str, recorded: datetime) -> _Model | None:
    """Return the actor in the directory of a path, which may be relative to a folder above the run, or to this one."""
    with suppress(OSError, ValueError, RuntimeError):  # the name in a manifest may be any text
        named = Path(name).expanduser()
        for folder in (*run.path.absolute().parents, Path.cwd()):
            directory = (folder / named).resolve()
            for other in directory.parents:
                actor = _actor_in(other, directory) if (other / MANIFEST).is_file() else None
                if actor is not None and actor.artifact.created < recorded:
                    return actor
    return None


def _actor_in(folder: Path, directory: Path) -> _Model | None:
    """Return the actor in a directory of the run in a folder; None if there is none, or the run cannot be read."""
    with suppress(SweetError):
        run = Run.open(folder)
        manifest = run.manifest()
        for actor in manifest.of_kind("actor"):
            if run.file(actor).resolve() == directory:
                return _Model(run, manifest, actor)
    return None


def trained_on(evaluation: Evaluation, record: TrainingRecord, task_ids: Collection[str]) -> int | None:
    """Return how many of these tasks of an evaluation its agent was trained on; None where this is not known.

    Args:
        task_ids: of scored tasks.
    """
    run, rollouts = evaluation.run, evaluation.rollouts
    recorded, tasks = _recorded(evaluation)
    if recorded == 0 or rollouts is None:
        return recorded
    try:
        count = record.count(run, rollouts, set(task_ids))
    except (SweetError, OSError):  # the dialogues cannot be read
        count = None
    return recorded if count is None and len(task_ids) == tasks else count


def _recorded(evaluation: Evaluation) -> tuple[int | None, int]:
    """Return the figure that `sweet eval` has recorded, None if it has none, and the number of the scored tasks."""
    attempt = evaluation.scored_by
    metrics = {} if attempt is None else attempt.metrics
    count, tasks = metrics.get("trained_on_tasks"), metrics.get("tasks")
    if isinstance(count, int) and isinstance(tasks, int) and 0 <= count <= tasks:
        return count, tasks
    return None, 0


def in_words(count: int | None, tasks: int) -> str:
    """Say on how many of the tasks that score it an agent was trained."""
    if count is None:
        return "Whether the agent was trained on these tasks is not recorded."
    if count == 0:
        return f"The agent was trained on none of these tasks ({tasks:,})."
    return f"The agent was trained on {count:,} of these {tasks:,} tasks: they do not show how it does on unseen ones."


def of_both_in_words(a: int | None, b: int | None, tasks: int) -> str:
    """Say on how many of the tasks that both have each side of a comparison was trained."""
    sides = ["an unknown number" if count is None else f"{count:,}" if count else "none" for count in (a, b)]
    seen = " The difference is not that on unseen tasks." if a or b else ""
    return f"Of these tasks ({tasks:,}) A was trained on {sides[0]}, B on {sides[1]}.{seen}"
