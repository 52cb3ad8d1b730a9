"""The code task: a function is asked for vaguely, its details are in the human's mind, hidden tests decide."""

from __future__ import annotations

from collections.abc import Sequence

from sweet.tasks.base import Message, Move, Recipe, Task
from sweet.tasks.code import datasets, prompts
from sweet.tasks.datasets import colbench_file


class CodeKind:
    """Backend programming of ColBench (implements sweet.tasks.base.TaskKind)."""

    name = "code"
    human_reply_limit = 400

    def default_tasks(self) -> str:
        return "colbench" if colbench_file("train").is_file() else "micro"

    def load(self, tasks: str, split: str) -> list[Task]:
        return datasets.load(tasks, split)

    def agent_system(self) -> str:
        return prompts.AGENT_SYSTEM

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        text = prompts.dialogue_prompt(task.problem_description, task.hidden, dialogue)
        return [Message(role="user", content=text)]

    def move(self, output: str, *, last: bool, recipe: Recipe = "paper") -> Move:
        return prompts.read_move(output, last=last, recipe=recipe)
