"""The html task: the request for a page is vague, the human has one exact page in mind, and the last page counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.tasks import prompts
from sweet.tasks.base import Message, Move, ProtocolName, Task
from sweet.tasks.files import COLBENCH_SPLITS, Wrong, downloaded_file
from sweet.tasks.findings import Checked
from sweet.tasks.html import writer
from sweet.tasks.html.page import extract_page, read_move, without_page
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import fill, indented, without
from sweet.tasks.scores import Metric, RewardRule, ScoringRequest, TrajectoryScorer

SPLITS = {"pages": ("train", "test"), "websight": COLBENCH_SPLITS}

_PAGE = "(a page)"


class Prompts(prompts.Prompts):
    """The prompts of the html task."""

    package = "sweet.tasks.html"
    places = ()
    optional_places = ("request", "dialogue")
    speaker = "Designer"

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> str:
        """Return the text for a model that plays the human: the request and the dialogue, without the pages' source.

        Without a dialogue the paragraphs of both are omitted (protocol `upstream` shows its human the pictures alone).
        """
        if not dialogue:
            return without(self.human, self.optional_places)
        lines: list[str] = []
        for message in dialogue:
            text = without_page(message.content, _PAGE) if message.role == "assistant" else message.content
            lines += [self.label(message.role), indented(text)]
        return fill(self.human, {"request": [indented(task.problem_description)], "dialogue": lines})


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
    splits = SPLITS
    scripted_agent = staticmethod(writer.write)

    @property
    def datasets(self) -> Mapping[str, Mapping[str, Path]]:  # type: ignore[override]
        return {"websight": {split: downloaded_file("websight", split) for split in COLBENCH_SPLITS}}

    @property
    def metrics(self) -> Mapping[str, Metric]:
        from sweet.tasks.html.diagnostics import METRICS  # numpy

        return METRICS

    def problem(self, task: Task) -> tuple[str, ...]:
        """The reference alone: another request for the same page is the same problem."""
        return (task.ground_truth,)

    def drawn(self, tasks: str, split: str) -> list[Task]:
        folder = resources.files("sweet.tasks.html") / tasks
        requests: dict[str, str] = json.loads((folder / "requests.json").read_text("utf-8"))[split]
        return [
            Task(
                id=f"{tasks}-{split}-{name}",
                problem_description=request,
                ground_truth=(folder / split / f"{name}.html").read_text("utf-8").strip(),
            )
            for name, request in requests.items()
        ]

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Return the reference page as it is rendered: without surrounding text, its image addresses rewritten."""
        page = extract_page(row["ground_truth"])
        if page is None:
            raise wrong("'ground_truth' contains no page.", "give it the page's source, from <html> to </html>")
        return {"ground_truth": page}

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """Accept every task: a page is all that is needed."""

    def move(self, output: str, *, last: bool, protocol: ProtocolName = "paper") -> Move:
        return read_move(output, protocol=protocol)

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        from sweet.tasks.html.scoring import check_pages

        yield from check_pages(tasks, request)

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        from sweet.tasks.html.scoring import open_html_scorer

        if request.scorer == "both":
            what = "Pages are scored by one scorer at a time."
            raise UsageError(what, where="--scorer both", fix="--scorer strict|upstream")
        protocol: ProtocolName = "upstream" if request.scorer == "upstream" else "paper"
        return open_html_scorer(request, partial(extract_page, protocol=protocol))
