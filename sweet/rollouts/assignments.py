"""The dialogues that a rollout plays: its tasks, its humans, and an assignment for each task and sample.

Each `--sim` with each `--persona` is one human. By default a task has the same human in all of its dialogues: a
preference is between two dialogues of one task, and should say which agent asked better, not who had the more helpful
human. Task number i, in the order in which the rollout has them, gets human i modulo their number, so the humans have
equally many tasks (within one) and a resumed rollout, or one with more samples, gives each task the same human. With
`--spread samples` sample k of task i gets human i + k, so that the humans meet the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweet.datasets.checking import refuse_invalid
from sweet.errors import UsageError
from sweet.hints import option
from sweet.humans.base import PICTURES, Human
from sweet.humans.personas import Persona, choose_personas
from sweet.humans.scripted import check_style
from sweet.llm.scripted import SCRIPTED
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.dialogue import Assignment
from sweet.runs.run import Run
from sweet.stages.base import Reporter, digest_of
from sweet.stages.frame import AskedModel
from sweet.stages.unseen_tasks import check_unplayed
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.registry import task_kind
from sweet.tasks.splits import Holdout, load_split


@dataclass(frozen=True)
class PlannedHuman:
    """A human: the model that plays it, or `scripted`, and its persona."""

    sim: str
    persona: Persona

    @property
    def name(self) -> str:
        """The name of the human in dialogues and tables: `scripted`, `MODEL:terse`."""
        return self.persona.of(self.sim)


@dataclass(frozen=True)
class PlannedHumans:
    """The humans of a rollout.

    Attributes:
        by_samples: whether the dialogues of one task have different humans.
    """

    humans: tuple[PlannedHuman, ...]
    by_samples: bool

    @property
    def named(self) -> bool:
        """Whether dialogues name their human: there are several, or it has a persona."""
        return len(self.humans) > 1 or bool(self.humans[0].persona.text)

    @property
    def title(self) -> str:
        """The names of all."""
        return ", ".join(human.name for human in self.humans)

    @property
    def sims(self) -> list[str]:
        """The models, each once; the scripted human is none."""
        return [sim for sim in dict.fromkeys(human.sim for human in self.humans) if sim != SCRIPTED]

    def models(self, kind: TaskKind, urls: Sequence[str]) -> list[AskedModel]:
        """Return the models that play them, each once."""
        images = PICTURES if kind.visual else 0
        return [AskedModel("sim", sim, urls, images) for sim in self.sims]

    def meta(self) -> dict[str, Any]:
        """Return the keys of the rollouts' meta that record several humans, or a persona; null without."""
        texts = {human.persona.name: human.persona.text for human in self.humans}
        return {
            "humans": [human.name for human in self.humans] if self.named else None,
            "personas_digest": digest_of(texts) if self.named else None,
            "humans_by": ("samples" if self.by_samples else "tasks") if self.named else None,
        }

    def name_of(self, task: int, sample: int) -> str | None:
        """Return the name of the human of a dialogue; None where dialogues name none.

        Args:
            task: place of the task among those that are played.
        """
        place = task + (sample if self.by_samples else 0)
        return self.humans[place % len(self.humans)].name if self.named else None

    def by_name(self, opened: Sequence[Human]) -> dict[str | None, Human]:
        """Return the opened humans, in the order of `humans`, by the names that dialogues have for them."""
        pairs = zip(self.humans, opened, strict=True)
        return {planned.name if self.named else None: human for planned, human in pairs}


def plan_humans(kind: TaskKind, config: RolloutConfig) -> PlannedHumans:
    """Return the humans that the options name.

    Raises:
        UsageError: there is no such persona, or the scripted human cannot play it; or the spread has no effect.
        InputError: the file of personas is invalid.
    """
    personas = choose_personas(config.persona, config.persona_file)
    humans = [PlannedHuman(sim, persona) for sim in config.sims for persona in personas]
    for human in humans:
        if human.sim == SCRIPTED:
            check_style(kind, human.persona)
    _check_names(humans)
    if config.spread == "samples" and (len(humans) == 1 or config.samples == 1):
        what = "One human" if len(humans) == 1 else "One dialogue of each task"
        raise UsageError(
            f"{what} cannot be spread over samples.",
            where="--spread samples",
            fix="--persona NAME or --sim MODEL several times, and "
            + option("samples", len(humans) if len(humans) > 1 else 2),
        )
    return PlannedHumans(tuple(humans), config.spread == "samples")


def _check_names(humans: Sequence[PlannedHuman]) -> None:
    names = [human.name for human in humans]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        what = f"Two humans would have the same name, {twice}."
        raise UsageError(what, where="--persona", fix="name each model and each persona once")


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
    source = config.tasks or kind.tasks_for(config.agent, scripted=SCRIPTED in config.sims)
    chosen = load_split(kind, source, config.split, Holdout(config.holdout, config.holdout_validation))
    tasks = refuse_invalid(kind, _selected(chosen.tasks, config), source, reporter, skip=config.skip_invalid)
    if chosen.own and run is not None:
        check_unplayed(run, kind, tasks, config.split)
    return kind, source, tasks, chosen.note


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
            yield Assignment(task, sample, config.seed, None if humans is None else humans.name_of(place, sample))
