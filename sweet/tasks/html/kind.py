"""The html task: the request for a page is vague, the human has one exact page in mind, and the last page counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from sweet.errors import UsageError
from sweet.hints import option
from sweet.tasks.base import Move, Recipe, Task
from sweet.tasks.datasets import websight_file
from sweet.tasks.files import Wrong
from sweet.tasks.findings import Checked
from sweet.tasks.html import datasets, writer
from sweet.tasks.html.page import extract_page, read_move
from sweet.tasks.html.prompts import Prompts
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.scores import Metric, RewardRule, ScoringRequest, TrajectoryScorer


class HtmlKind(TaskKind):
    """Frontend design, as in ColBench. `ground_truth` is the reference page."""

    name = "html"
    texts = Prompts
    language = "html"
    human_reply_limit = 1000
    rewards = RewardRule(solved=None, margin=0.1)
    dialogue_epochs = 8  # the paper's, table of hyperparameters
    scorer_options = frozenset({"scorer", "similarity", "window", "pictures"})
    visual = True
    spreads = True

    @property
    def scripted_agent(self) -> ScriptedAgent:
        return writer.write

    @property
    def metrics(self) -> Mapping[str, Metric]:
        from sweet.tasks.html.metrics import METRICS  # numpy

        return METRICS

    def default_tasks(self) -> str:
        return "websight" if websight_file("train").is_file() else "pages"

    def has_dataset(self, name: str) -> bool:
        return name in datasets.SPLITS

    def problem(self, task: Task) -> tuple[str, ...]:
        """The reference alone: another request for the same page is the same problem."""
        return (task.ground_truth,)

    def load(self, tasks: str, split: str) -> list[Task]:
        return datasets.load(tasks, split)

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        return datasets.fields(row, wrong)

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """Accept every task: a page is all that is needed."""

    def move(self, output: str, *, last: bool, recipe: Recipe = "paper") -> Move:
        return read_move(output, recipe=recipe)

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        from sweet.tasks.html.check import check_pages

        yield from check_pages(tasks, request)

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        from sweet.tasks.html.scoring import open_html_scorer

        if request.scorer == "both":
            what = "Pages are scored by one scorer at a time."
            raise UsageError(what, where=option("scorer", "both"), fix=option("scorer", ("strict", "upstream")))
        recipe: Recipe = "upstream" if request.scorer == "upstream" else "paper"
        return open_html_scorer(request, partial(extract_page, recipe=recipe))
