"""The interface of a kind of task, by which all stages work with it.

A kind defines the prompts, how a raw reply is parsed into a move, and how answers are scored. It must have a name,
texts and a scorer (`open_scorer`). Everything else has a default that suits text tasks with a human who knows facts. A
kind is an entry point of the group `sweet.tasks`, so that packages can add kinds (docs/tasks.md); it is created without
arguments and holds no state of a dialogue.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sweet.errors import UsageError
from sweet.hints import option
from sweet.tasks.base import Credit, Message, Move, ProtocolName, Task, ToolCall
from sweet.tasks.facts import reply_from_facts
from sweet.tasks.files import DOWNLOADED, Wrong, check_split, load_task_file, not_there
from sweet.tasks.findings import Checked, Finding, check_by_scorer
from sweet.tasks.markers import MAX_TURNS, read_move
from sweet.tasks.packaged import PACKAGED
from sweet.tasks.parts import reference_from
from sweet.tasks.prompts import Prompts, fill_turns
from sweet.tasks.scores import METRICS, Metric, RewardRule, ScoringRequest, TrajectoryScorer
from sweet.tasks.tools import Toolbox

ScriptedAgent = Callable[[Sequence[Message], float, int | None], str | Message]
"""A rule-based agent: maps the dialogue so far, a temperature (0: no mistakes) and the turn's seed to a raw reply, or
to a message of the agent with calls of tools."""


class TaskKind(ABC):
    """A kind of task.

    Attributes:
        name: the name of the entry point; with a source, `NAME:SOURCE`.
        takes: what a name must have behind a colon, in a word (`DOMAIN`); empty if it has none.
        source: what the name has there.
        texts: the class of its prompts.
        datasets: for each named dataset the JSONL file of each split; the first dataset is the default.
        language: the language of its answers, by its name in Pygments; empty for prose.
        human_reply_limit: a human's reply is cut to this many characters.
        rewards: how trainings interpret its rewards.
        dialogue_epochs: passes of a large model over whole dialogues (critic, multi-turn DPO, rejection fine-tuning),
            where `--epochs` is not given.
        scorer_options: the options of `sweet eval` that its scorer accepts (`sweet.tasks.scores.SCORER_OPTIONS`).
        visual: whether the human sees pages: answers and `ground_truth` are HTML and are rendered for it.
    """

    name: str
    texts: type[Prompts]
    datasets: Mapping[str, Mapping[str, Path]] = {}
    language: str = ""
    human_reply_limit: int = 400
    rewards: RewardRule = RewardRule()
    dialogue_epochs: int = 4
    scorer_options: frozenset[str] = frozenset()
    visual: bool = False
    takes: str = ""
    source: str = ""
    _prompts: Prompts | None = None

    @abstractmethod
    def open_scorer(self, request: ScoringRequest) -> AbstractContextManager[TrajectoryScorer]:
        """Return a context manager that opens the scorer of the kind's trajectories.

        Raises (on entering):
            SweetError: something that the scorer needs is missing.
        """

    @property
    def scripted_agent(self) -> ScriptedAgent | None:
        """A rule-based agent, or None."""
        return None

    @property
    def splits(self) -> Mapping[str, Collection[str]]:
        """The splits of each named dataset, also of a source and of others that are no files (`drawn`)."""
        return {self.source: ("train", "test")} if self.source else self.datasets

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics that its scores may have, by name, the most informative first."""
        return METRICS

    @property
    def prompts(self) -> Prompts:
        """The prompts in use: the packaged ones, or those of `with_prompts`."""
        if self._prompts is None:
            self._prompts = self.texts.packaged()
        return self._prompts

    def with_source(self, source: str) -> Self:
        """Return the same kind with what its name has behind the colon.

        Raises:
            UsageError: there is no such source.
        """
        other = copy.copy(self)
        other.name, other.source = f"{self.name}:{source}", source
        return other

    def with_prompts(self, folder: Path) -> Self:
        """Return the same kind with the prompts of a folder.

        Raises:
            InputError: the folder or a prompt in it is invalid.
        """
        other = copy.copy(self)
        other._prompts = self.texts.of(folder)
        return other

    def with_specifications(self) -> Self:
        """Return the same kind whose human reads the specification of a task (`Task.specification`) and not its hidden
        information."""
        other, texts = copy.copy(self), self.prompts
        other._prompts = replace(texts, human=texts.human_spec or texts.human, specified=True)
        return other

    def agent_system(self) -> str:
        """Return the agent's system prompt."""
        return self.prompts.agent

    def human_prompt(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        """Return the messages for an LLM that plays the human: request, hidden information and the dialogue so far."""
        return [Message(role="user", content=self.prompts.human_prompt(task, dialogue))]

    def default_tasks(self) -> str:
        """Return the name of the default dataset: the first.

        Raises:
            UsageError: the kind has no dataset.
        """
        if not self.splits:
            raise UsageError(f"The kind {self.name} comes without tasks.", fix="name a JSONL file of tasks")
        return next(iter(self.splits))

    def tasks_for(self, agent: str | None = None, *, scripted: bool = False) -> str:
        """Return the name of the dataset that both sides can play where none is named: that of a packaged agent; else
        one that was downloaded; else the default.

        Args:
            agent: that plays; None for any.
            scripted: whether the scripted human plays, which needs the facts of a task, or pages.

        Raises:
            UsageError: the kind has no dataset.
        """
        if agent is not None and agent in PACKAGED and self.has_dataset(agent):
            return agent
        usable = DOWNLOADED if self.visual or not scripted else ()
        files = {name: self.datasets.get(name, {}).get("train") for name in usable}
        return next((name for name, file in files.items() if file and file.is_file()), None) or self.default_tasks()

    def has_dataset(self, name: str) -> bool:
        """Return whether a dataset has this name; a file of the same name is then not used."""
        return name in self.splits

    def problem(self, task: Task) -> tuple[str, ...]:
        """Return the texts that make a task this problem: tasks that are equal in all of them, whatever their ids, are
        the same, and belong to the same split of a file."""
        return task.problem_description, task.ground_truth, task.hidden

    def load(self, tasks: str, split: str) -> list[Task]:
        """Load the tasks of a named dataset or of a JSONL file, in their order; of a file all, whatever their split.

        Raises:
            UsageError: the dataset has no such split, or is not on this machine.
            InputError: there is no such file, or a row of it is invalid.
        """
        check_split(tasks, split, self.splits)
        if tasks in self.splits and tasks not in self.datasets:
            return self.drawn(tasks, split)
        path = self.datasets[tasks][split] if tasks in self.datasets else Path(tasks)
        if path.is_file():
            return load_task_file(path, self.fields)
        if tasks in DOWNLOADED and tasks in self.datasets:
            what = f"The {split} split of {tasks} is not on this machine."
            raise UsageError(what, where=path, fix=f"sweet data {tasks}")
        raise not_there(path, self.splits)

    def drawn(self, tasks: str, split: str) -> list[Task]:
        """Return the tasks of a split of its source, or of another dataset that is no file."""
        raise NotImplementedError

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Check a row of a task file, and return the fields to replace or add.

        `sweet.tasks.files` checks the fields that every kind has.

        Args:
            wrong: creates the error to raise for an invalid row.
        """
        return {}

    def faults(self, tasks: Sequence[Task]) -> list[Finding]:
        """Return what makes tasks unusable as far as their texts show it, without running any; `sweet rollout` refuses
        such tasks. It is called before every rollout of tasks from a file, with thousands of them."""
        return []

    def check(self, tasks: Sequence[Task], request: ScoringRequest, repeats: int) -> Iterator[Checked]:
        """Yield each task, in their order, with what is wrong with it, for `sweet data check`.

        By default the kind's scorer scores a missing answer. What only compares texts, such as duplicates, is found
        elsewhere (`sweet.datasets.checking`).

        Args:
            request: the options of the sandbox; its folder is temporary.
            repeats: how often each reference runs.

        Raises:
            SweetError: something that is needed is missing.
        """
        with self.open_scorer(request) as scorer:
            yield from check_by_scorer(scorer, self.rewards, tasks, repeats)

    def check_scripted_human(self, tasks: Sequence[Task]) -> None:
        """Check that the scripted human can play all tasks.

        Raises:
            UsageError: it cannot play one of them.
        """
        mute = next((task for task in tasks if not task.facts), None)
        if mute is not None:
            raise UsageError(
                f"The scripted human speaks from a task's facts, and task {mute.id} has none.",
                where="the tasks",
                fix='tasks with "facts", or a model as the human: --sim MODEL',
            )

    def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
        """Return the scripted human's reply to the agent's last message; it depends on nothing else."""
        question = next((message.content for message in reversed(dialogue) if message.role == "assistant"), "")
        return reply_from_facts(task, question)

    def toolbox(self, task: Task) -> Toolbox | None:
        """Return the tools of a dialogue on a task, with their state at its beginning; None if the agent has none.

        The trajectory records the tools, the calls and, as `tool_state`, the state in the end, for the scorer.
        """
        return None

    @property
    def offers_tools(self) -> bool:
        """Whether dialogues of this kind may have tools."""
        return type(self).toolbox is not TaskKind.toolbox

    def move(self, output: str, *, last: bool, protocol: ProtocolName = "paper") -> Move:
        """Parse a raw reply; `last` says that no further turn is allowed."""
        return read_move(output, last=last, protocol=protocol)

    def whole_answer(self, task: Task, dialogue: Sequence[Message], answer: str) -> str:
        """Return the answer that is scored, where `answer` is that of the last move (`Move.answer`).

        `dialogue` is what was said before that move: an answer may be built over several turns.
        """
        return answer

    def reference_from(self, task: Task, dialogue: Sequence[Message]) -> list[Message]:
        """Return what the reference says after a dialogue, up to its answer, with the other side's replies between. Of
        a kind with tools, also its calls, whose results are found by making them."""
        return reference_from(task, dialogue)

    def credit(self, task: Task, observation: Sequence[Message], reply: str, *, last: bool) -> Credit | None:
        """Return the value of a raw reply to an observation by the task's own knowledge, or None if it has none.

        `last` says that no further turn is allowed.
        """
        return None

    def call_credit(self, task: Task, observation: Sequence[Message], calls: Sequence[ToolCall]) -> Credit | None:
        """Return the value of a reply that calls tools by the task's own knowledge, or None if it has none.

        The credits of both kinds of replies are of one scale: `rank` compares them.
        """
        return None


def check_scorer_option(kind: TaskKind, name: str) -> None:
    """Raise UsageError if the scorer of a kind does not accept this option, which was given."""
    if name not in kind.scorer_options:
        raise UsageError(
            f"{option(name)} does not apply to tasks of the kind {kind.name}.",
            where=option(name),
            fix=f"omit {option(name)}",
        )


def system_prompt(kind: TaskKind, max_turns: int) -> str:
    """Return the agent's system prompt in dialogues of at most `max_turns` turns."""
    return fill_turns(kind.agent_system(), max_turns)


def opening(kind: TaskKind, task: Task, max_turns: int = MAX_TURNS) -> list[Message]:
    """Return the agent's messages before its first turn: its system prompt and the human's request."""
    system = system_prompt(kind, max_turns)
    return [Message(role="system", content=system), Message(role="user", content=task.problem_description)]
