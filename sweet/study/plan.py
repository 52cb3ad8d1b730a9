"""The work of one seed of a study, in parts: a part is a method or a piece of a figure.

Parts of one run share its steps, so their order only decides which are done first. A smaller number of training tasks
has a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from sweet.pipeline.steps import ReadOnlyStepCache, StepCache, StepMissing
from sweet.runs.run import Run
from sweet.stages.base import Reporter, Silent
from sweet.study.settings import CRITICS, CURVES, TURN_JUDGES, Method, StudySizes
from sweet.study.study_steps import StudySteps
from sweet.units import count

SAMPLED, GREEDY = 1.0, 0.0
"""The temperatures at which actors are evaluated."""


T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Attributes:
    name: as it is reported.
    run: the name of its run in the study's folder.
    """

    name: str
    run: str
    sizes: StudySizes
    do: Callable[[StudySteps], object]


class SeedJob(BaseModel):
    """The work of one process.

    Attributes:
        folder: of the study.
        methods: whose actors are evaluated.
        temperatures: of the evaluations.
        figures: whether the figures of these methods are made too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    seed: int
    sizes: StudySizes
    methods: tuple[Method, ...]
    temperatures: tuple[float, ...] = (SAMPLED, GREEDY)
    figures: bool = True

    @property
    def run(self) -> str:
        """The name of the seed's own run."""
        return f"seed-{self.seed}"

    def part_run(self, divisor: int) -> tuple[str, StudySizes]:
        """Return the run for a part of the training tasks, and its sizes.

        Args:
            divisor: 1 for all tasks, which is the seed's own run.
        """
        if divisor == 1:
            return self.run, self.sizes
        tasks = max(1, self.sizes.train_tasks // divisor)
        return f"{self.run}-tasks-{tasks}", self.sizes.model_copy(update={"train_tasks": tasks})

    def parts(self) -> list[Part]:
        """Return all parts, the methods first."""
        parts = [self._part(method.name, self._evaluate, method) for method in self.methods]
        return [*parts, *self._figures()] if self.figures else parts

    def _part(self, title: str, do: Callable[..., object], method: Method) -> Part:
        return Part(title, self.run, self.sizes, partial(do, method=method))

    def _evaluate(self, steps: StudySteps, *, method: Method) -> None:
        for temperature in self.temperatures:
            steps.evaluate(method, temperature)

    def _figures(self) -> list[Part]:
        by_name = {method.name: method for method in self.methods}
        parts = []
        for name in CRITICS.values():
            if name in by_name:
                parts.append(self._part(f"best of N dialogues by {name}", StudySteps.best_of, by_name[name]))
                parts.append(self._part(f"credit by {name}", StudySteps.credit, by_name[name]))
        parts += [
            self._part(f"best of N replies by {name}", StudySteps.best_of_turns, by_name[name])
            for name in TURN_JUDGES.values()
            if name in by_name
        ]
        for divisor in (*self.sizes.parts, 1):
            run, sizes = self.part_run(divisor)
            for name in CURVES:
                if name in by_name and divisor in divisors_of(by_name[name], self):
                    title = f"learning curve of {name}, {count(sizes.train_tasks, 'task')}"
                    parts.append(Part(title, run, sizes, partial(StudySteps.validated, method=by_name[name])))
        if "zero-shot" in by_name:
            start = "start of the learning curves"
            parts.append(self._part(start, StudySteps.validated, by_name["zero-shot"]))
        return parts

    def is_done(self) -> bool:
        """Return whether every step of all parts is finished."""
        try:
            for part in self.parts():
                if not (self.folder / part.run).is_dir():
                    return False
                part.do(self.steps(part.run, part.sizes, ReadOnlyStepCache, Silent()))
        except StepMissing:
            return False
        return True

    def steps(self, run: str, sizes: StudySizes, cache: type[StepCache], reporter: Reporter) -> StudySteps:
        """Return the steps of one of the runs, which is created where it does not exist."""
        return StudySteps(cache(Run.open_or_create(self.folder / run, "code"), reporter), sizes, self.seed)


def read_seeds(jobs: Sequence[SeedJob], read: Callable[[StudySteps], T], divisor: int = 1) -> dict[int, T]:
    """Read something from the finished steps of each seed.

    Args:
        read: reads it from the steps of one run.
        divisor: of the training tasks, see `SeedJob.part_run`.

    Returns:
        The values by seed, without the seeds where a step is not finished.
    """
    by_seed = {}
    for job in jobs:
        run, sizes = job.part_run(divisor)
        if (job.folder / run).is_dir():
            try:
                by_seed[job.seed] = read(job.steps(run, sizes, ReadOnlyStepCache, Silent()))
            except StepMissing:
                continue
    return by_seed


def divisors_of(method: Method, job: SeedJob) -> tuple[int, ...]:
    """Return the parts of the training tasks that the method's learning curve needs; a method that learns online has
    its points in the run of all tasks."""
    return (1,) if method.online else (*job.sizes.parts, 1)
