"""The code task: a vague request for a function, a human who knows its details, and hidden tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.code import datasets
from sweet.tasks.code.metrics import UPSTREAM_METRICS
from sweet.tasks.code.prompts import Prompts
from sweet.tasks.datasets import colbench_file
from sweet.tasks.files import Wrong
from sweet.tasks.findings import Checked, Finding
from sweet.tasks.kind import TaskKind
from sweet.tasks.parts import assembled
from sweet.tasks.scores import METRICS, Metric, ScoringRequest, TrajectoryScorer


class CodeKind(TaskKind):
    """Backend programming, as in ColBench."""

    name = "code"
    texts = Prompts
    language = "python"
    scorer_options = frozenset({"scorer", "tolerance"})

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {**METRICS, **UPSTREAM_METRICS}

    def default_tasks(self) -> str:
        return "colbench" if colbench_file("train").is_file() else "micro"

    def has_dataset(self, name: str) -> bool:
        return name in datasets.SPLITS

    def problem(self, task: Task) -> tuple[str, ...]:
        """The reference alone: another request for the same function is the same problem."""
        return (task.ground_truth,)

    def load(self, tasks: str, split: str) -> list[Task]:
        return datasets.load(tasks, split)

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        return datasets.fields(row, wrong)

    def faults(self, tasks: Sequence[Task]) -> list[Finding]:
        from sweet.tasks.code.check import code_faults

        return code_faults(tasks)

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        from sweet.tasks.code.check import check_code

        yield from check_code(tasks, request, repeats)

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        from sweet.tasks.code.evaluation import open_code_scorer

        return open_code_scorer(request)

    def whole_answer(self, task: Task, dialogue: Sequence[Message], answer: str) -> str:
        return assembled(task, dialogue, answer)

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit | None:
        from sweet.tasks.code.credit import credit

        return credit(task, observation, self.move(reply, last=last), last=last)
