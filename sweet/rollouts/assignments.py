"""The dialogues that a rollout plays: its tasks, and an assignment for each task and sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sweet.datasets.checking import refuse_invalid
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment
from sweet.rollouts.humans import PlannedHumans
from sweet.runs.run import Run
from sweet.stages.base import Reporter, digest_of
from sweet.stages.played_tasks import check_unplayed
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import Holdout, load_split


def load_tasks(
    run: Run | None, config: RolloutConfig, reporter: Reporter
) -> tuple[TaskKind, str, list[Task], str | None]:
    """Return the kind of task, the dataset, the tasks that are played, and what is to be said about their splits.

    Raises:
        UsageError: there is no such dataset or split, or the run has dialogues on these tasks as another split.
        InputError: a row of the file is not a task, or a task cannot be scored.
    """
    kind = task_kind(config.task)
    if config.prompts is not None:
        kind = kind.with_prompts(config.prompts)
    if config.human == "spec":
        kind = kind.with_specifications()
    source = config.tasks or kind.default_tasks()
    chosen = load_split(kind, source, config.split, Holdout(config.holdout, config.holdout_validation))
    tasks = refuse_invalid(kind, _selected(chosen.tasks, config), source, reporter, skip=config.skip_invalid)
    if chosen.own and run is not None:
        check_unplayed(run, kind, tasks, config.split)
    return kind, source, tasks, chosen.note


def digest_of_tasks(tasks: Iterable[Task]) -> str:
    return digest_of([task.model_dump(mode="json") for task in tasks])


def _selected(tasks: list[Task], config: RolloutConfig) -> list[Task]:
    """Return the first tasks, or those that the seed draws, in their order."""
    if not config.draw_tasks or config.num_tasks is None:
        return tasks[: config.num_tasks]
    drawn = sorted(tasks, key=lambda task: digest_of([config.seed, "task", task.id]))[: config.num_tasks]
    ids = {task.id for task in drawn}
    return [task for task in tasks if task.id in ids]


def assignments_of(
    tasks: Iterable[Task], config: RolloutConfig, humans: PlannedHumans | None = None
) -> Iterator[Assignment]:
    """Yield sample by sample, so that an interrupted rollout covers many tasks rather than few.

    Args:
        humans: over whom the dialogues are spread; None leaves their human open.
    """
    tasks = list(tasks)
    for sample in range(config.samples):
        for place, task in enumerate(tasks):
            yield Assignment(task, sample, config.seed, None if humans is None else humans.of(place, sample))
