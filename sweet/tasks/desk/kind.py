"""The kind of task `desk`: its texts, tools, scripted customer, and the value of a reply."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sweet.tasks import prompts
from sweet.tasks.base import Credit, Message, Task
from sweet.tasks.desk.agent import speak
from sweet.tasks.desk.generator import DESK
from sweet.tasks.desk.generator import load as load_generated
from sweet.tasks.desk.scoring import DeskScorer, credit_of
from sweet.tasks.desk.tools import CALLS, RECORDS, TOOLS, Row, after, records_of, run
from sweet.tasks.files import Wrong
from sweet.tasks.kind import ScriptedAgent, TaskKind
from sweet.tasks.scores import ScoringRequest
from sweet.tasks.shops import reply_of_customer
from sweet.tasks.toolboxes.functions import FunctionTools
from sweet.tasks.tools import ToolCall


class Prompts(prompts.Prompts):
    """The prompts of the desk."""

    package = "sweet.tasks.desk"
    speaker = "Desk"


class DeskKind(TaskKind):
    """Customers at the desk of a shop."""

    name = "desk"
    texts = Prompts

    @property
    def splits(self) -> Mapping[str, Collection[str]]:
        return {name: tuple(dataset.splits) for name, dataset in DESK.items()}

    @property
    def scripted_agent(self) -> ScriptedAgent:
        return speak

    def load(self, tasks: str, split: str) -> list[Task]:
        return load_generated(tasks, split) if tasks in DESK else super().load(tasks, split)

    def fields(self, row: dict[str, Any], wrong: Wrong) -> dict[str, Any]:
        """Check a row's records, and the calls of its reference by making them."""
        read = Row.model_validate(row)
        records = read.records.model_dump()
        try:
            for call in read.calls:
                run(after(records, ()), ToolCall.of(call.name, **call.arguments))
        except ValueError as error:
            raise wrong(f"A call of the reference cannot be made: {error}.", f"correct {CALLS!r}") from error
        return {RECORDS: records}

    def scripted_reply(self, task: Task, dialogue: Sequence[Message]) -> str:
        return reply_of_customer(task, dialogue)

    def toolbox(self, task: Task) -> FunctionTools:
        return FunctionTools(records_of(task), tuple(TOOLS.values()))

    @contextmanager
    def open_scorer(self, request: ScoringRequest) -> Iterator[DeskScorer]:
        yield DeskScorer()

    def credit(
        self,
        task: Task,
        observation: Sequence[Message],
        reply: str,
        *,
        last: bool,
        calls: Sequence[ToolCall] = (),
    ) -> Credit | None:
        """Return the value of a reply, by what the reference does (`sweet.tasks.desk.scoring`)."""
        return credit_of(task, observation, self.move(reply, last=last), last=last, calls=calls)
