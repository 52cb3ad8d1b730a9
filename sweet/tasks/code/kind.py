"""The code task: a function is asked for vaguely, its details are in the human's mind, hidden tests decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from sweet.errors import UsageError
from sweet.tasks.base import Message, Move, Recipe, Task
from sweet.tasks.code import datasets
from sweet.tasks.code.figures import FIGURES, UPSTREAM_FIGURES
from sweet.tasks.code.prompts import HumanPrompt, Prompts, read_move
from sweet.tasks.datasets import colbench_file
from sweet.tasks.scores import Figure, RewardRule, ScoringRequest, TrajectoryScorer


class CodeKind:
    """Backend programming of ColBench (implements sweet.tasks.base.TaskKind)."""

    name = "code"
    human_reply_limit = 400
    rewards = RewardRule(solved=1.0)
    scorer_options = frozenset({"scorer", "tolerance"})
    visual = False
    scripted_agent = None
    figures: Mapping[str, Figure] = FIGURES | UPSTREAM_FIGURES

    def __init__(self, prompts: Prompts | None = None) -> None:
        self.prompts = prompts or Prompts.packaged()

    def with_prompts(self, folder: Path) -> CodeKind:
        return CodeKind(Prompts.of(folder))

    def default_tasks(self) -> str:
        return "colbench" if colbench_file("train").is_file() else "micro"

    def load(self, tasks: str, split: str) -> list[Task]:
        return datasets.load(tasks, split)

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        mute = next((task for task in tasks if not task.facts), None)
        if mute is not None:
            raise UsageError(
                f"The scripted human speaks from a task's facts, and task {mute.id} has none.",
                where="the tasks",
                fix="--tasks micro, or a model as the human",
            )

    def agent_system(self) -> str:
        return self.prompts.agent

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        text = self.prompts.human_prompt(HumanPrompt(task.problem_description, task.hidden, tuple(dialogue)))
        return [Message(role="user", content=text)]

    def move(self, output: str, *, last: bool, recipe: Recipe = "paper") -> Move:
        return read_move(output, last=last, recipe=recipe)

    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        from sweet.tasks.code.evaluation import open_code_scorer

        return open_code_scorer(request)
