"""What a kind of task brings, so that everything else works with it.

A kind says how its agent is addressed, how a raw reply becomes a move in the dialogue, and what an answer is worth. It
must bring its name, its texts, its datasets and a scorer (`open_scorer`). All else has a default that suits tasks of
text with a human who knows facts. A kind is an entry point of the group `sweet.tasks`, so that a package can bring its
own (docs/tasks.md); it is made without arguments and holds nothing of a dialogue.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from sweet.errors import UsageError
from sweet.tasks.base import Credit, Message, Move, Recipe, Task
from sweet.tasks.facts import tell
from sweet.tasks.files import Wrong, check_split, load_task_file, not_there
from sweet.tasks.markers import MAX_TURNS, read_move
from sweet.tasks.prompts import Prompts, tell_turns
from sweet.tasks.scores import METRICS, Metric, RewardRule, ScoringRequest, TrajectoryScorer

ScriptedAgent = Callable[[Sequence[Message], float, int | None], str]
"""An agent of rules: the dialogue so far, a temperature (0 makes no mistakes) and the turn's seed to a raw reply."""


class TaskKind(ABC):
    """A kind of task.

    Attributes:
        name: the entry point's.
        texts: how agent and human are addressed.
        datasets: its named datasets, each the JSONL file of each split; the first is meant where none is named.
        language: what its answers are written in, as highlighters call it; empty for prose.
        human_reply_limit: a human's reply is cut to this many characters.
        rewards: how its rewards are read by who learns from them.
        scorer_options: which options of `sweet eval` that decide rewards its scorer takes: of scorer, tolerance,
            similarity.
        visual: whether the human sees pages: what the agent shows, and `ground_truth`, are HTML and are rendered for
            it.
        spreads: whether its scorer itself works on the Ray cluster that is asked for; otherwise there is one on each
            node.
    """

    name: str
    texts: type[Prompts]
    datasets: Mapping[str, Mapping[str, Path]] = {}
    language: str = ""
    human_reply_limit: int = 400
    rewards: RewardRule = RewardRule()
    scorer_options: frozenset[str] = frozenset()
    visual: bool = False
    spreads: bool = False
    _prompts: Prompts | None = None

    @abstractmethod
    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        """What scores its trajectories, open for as long as the context is.

        Raises (on entering):
            SweetError: what it needs is not there.
        """

    @property
    def scripted_agent(self) -> ScriptedAgent | None:
        """An agent without a model, where the kind has one."""
        return None

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics that its scores may have, by name, the most informative one first."""
        return METRICS

    @property
    def prompts(self) -> Prompts:
        """The texts in use: the packaged ones, or those of `with_prompts`."""
        return self._prompts or self.texts.packaged()

    def with_prompts(self, folder: Path) -> Self:
        """The same kind with other prompts, those of a folder; InputError where they cannot be used."""
        other = copy.copy(self)
        other._prompts = self.texts.of(folder)
        return other

    def agent_system(self) -> str:
        """The agent's system prompt."""
        return self.prompts.agent

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        """The messages an LLM that plays the human gets: request, hidden information and the dialogue so far."""
        return [Message(role="user", content=self.prompts.human_prompt(task, dialogue))]

    def default_tasks(self) -> str:
        """The dataset that is meant where none is named."""
        if not self.datasets:
            raise UsageError(f"The kind {self.name} comes without tasks.", where="--tasks", fix="--tasks FILE.jsonl")
        return next(iter(self.datasets))

    def load(self, tasks: str, split: str) -> list[Task]:
        """The tasks of a named dataset or of a JSONL file, in their order; InputError where they are wrong."""
        check_split(tasks, split, self.datasets)
        path = self.datasets[tasks][split] if tasks in self.datasets else Path(tasks)
        if not path.is_file():
            raise not_there(path, self.datasets)
        return load_task_file(path, self.fields)

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """What the kind makes of a row of a task file, in place of what stands there; raises what `wrong` makes where
        the row is wrong. `sweet.tasks.files` looks after the fields that every kind has."""
        return {}

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """UsageError where the scripted human cannot play one of the tasks."""
        mute = next((task for task in tasks if not task.facts), None)
        if mute is not None:
            raise UsageError(
                f"The scripted human speaks from a task's facts, and task {mute.id} has none.",
                where="the tasks",
                fix='tasks with "facts", or a model as the human: --sim MODEL',
            )

    def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
        """What the scripted human says to the agent's last message; depends on nothing else."""
        question = next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")
        return tell(task, question)

    def move(self, output: str, *, last: bool, recipe: Recipe = "paper") -> Move:
        """Read a raw reply; `last` says that no further turn is allowed."""
        return read_move(output, last=last, recipe=recipe)

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit | None:
        """What a raw reply to an observation is worth by the task's own knowledge, which no critic has; None where it
        knows nothing of it. `last` says that no further turn is allowed."""
        return None


def system_prompt(kind: TaskKind, max_turns: int) -> str:
    """The agent's system prompt in dialogues of so many turns at most."""
    return tell_turns(kind.agent_system(), max_turns)


def opening(kind: TaskKind, task: Task, max_turns: int = MAX_TURNS) -> list[Message]:
    """The agent's messages before its first turn: its system prompt and the human's request."""
    system = system_prompt(kind, max_turns)
    return [Message(role="system", content=system), Message(role="user", content=task.problem_description)]
