"""The code task: a vague request for a function, a human who knows its details, and hidden tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.code import datasets
from sweet.tasks.code.metrics import UPSTREAM_METRICS
from sweet.tasks.code.prompts import Prompts
from sweet.tasks.datasets import colbench_file
from sweet.tasks.kind import TaskKind
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

    def load(self, tasks: str, split: str) -> list[Task]:
        return datasets.load(tasks, split)

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        from sweet.tasks.code.evaluation import open_code_scorer

        return open_code_scorer(request)

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit | None:
        from sweet.tasks.code.credit import credit

        return credit(task, observation, self.move(reply, last=last), last=last)
