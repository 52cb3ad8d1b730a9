"""What one seed of a study does, part by part: a part is a method or a piece of a figure.

Parts of one run share its steps, so their order decides only which is done first. A smaller number of training tasks
has a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sweet.runs.run import Run
from sweet.stages.base import Reporter
from sweet.study.settings import CRITICS, MAIN, Method, StudySizes
from sweet.study.step_cache import Ledger
from sweet.study.study_steps import Lab

SAMPLED, GREEDY = 1.0, 0.0
"""The temperatures at which actors are evaluated."""


@dataclass(frozen=True)
class Part:
    """Attributes:
    name: in words.
    run: the name of its run below the study's folder.
    """

    name: str
    run: str
    sizes: StudySizes
    do: Callable[[Lab], None]


class SeedJob(BaseModel):
    """What one process does.

    Attributes:
        folder: the study's.
        methods: those whose actors are evaluated.
        temperatures: of the evaluations.
        figures: whether the figures are made, as far as they concern these methods.
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
        """The run of a part of the training tasks, and its sizes; the seed's own for all of them."""
        if divisor == 1:
            return self.run, self.sizes
        tasks = max(1, self.sizes.train_tasks // divisor)
        return f"{self.run}-tasks-{tasks}", self.sizes.model_copy(update={"train_tasks": tasks})

    def parts(self) -> list[Part]:
        """Everything there is to do, the methods first."""
        evaluate = partial(_evaluate, temperatures=self.temperatures)
        parts = [Part(method.name, self.run, self.sizes, partial(evaluate, method=method)) for method in self.methods]
        if self.figures:
            parts += self._figures()
        return parts

    def _figures(self) -> list[Part]:
        by_name = {method.name: method for method in self.methods}
        parts = []
        for name in CRITICS.values():
            if name in by_name:
                best, credit = partial(_best_of, method=by_name[name]), partial(_credit, method=by_name[name])
                parts.append(Part(f"best of N by {name}", self.run, self.sizes, best))
                parts.append(Part(f"credit by {name}", self.run, self.sizes, credit))
        for divisor in self.sizes.parts:
            run, sizes = self.part_run(divisor)
            for name in MAIN:
                if name in by_name:
                    evaluate = partial(_evaluate, method=by_name[name], temperatures=(SAMPLED,))
                    parts.append(Part(f"{name} on {sizes.train_tasks} tasks", run, sizes, evaluate))
        return parts

    def lab(self, run: str, sizes: StudySizes, ledger: type[Ledger], reporter: Reporter) -> Lab:
        """The lab of one of the runs, which is made where it is not there."""
        return Lab(ledger(Run.open_or_create(self.folder / run, "code"), reporter), sizes, self.seed)


def _evaluate(lab: Lab, *, method: Method, temperatures: tuple[float, ...]) -> None:
    for temperature in temperatures:
        lab.evaluate(method, temperature)


def _best_of(lab: Lab, *, method: Method) -> None:
    lab.best_of(method)


def _credit(lab: Lab, *, method: Method) -> None:
    lab.credit(method)
