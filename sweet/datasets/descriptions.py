"""Writes the specifications of tasks, and checks each: the work of `sweet data describe`.

A model reads request and reference and writes the specification. It is kept if it says enough and gives nothing away:
the search for leaks (sweet.humans.leaks) finds no source in it, and what a model writes that sees request and
specification alone passes the hidden tests, in the sandbox. Otherwise the first model is asked again, with the reason,
a bounded number of times. The first try is greedy, later ones are sampled. Texts of models are data here: they are
searched, filled into prompts indented, and run in the sandbox only.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from sweet.datasets.metrics import Undescribable, Undescribed
from sweet.humans.faults import fault_of
from sweet.llm.base import ChatClient, Completion, RequestFailed, Sampling
from sweet.llm.connect import client_of
from sweet.runs.jsonl import JsonlWriter
from sweet.stages.base import OPERATIONAL, Progress, Reporter, about, digest_of
from sweet.stages.failures import run_all
from sweet.stages.options import DeviceConfig, RequestConfig, SeedConfig, TaskConfig, WorkersConfig
from sweet.stages.prices import Budget, PricedConfig
from sweet.tasks.async_scorer import AsyncScorer, async_scorer
from sweet.tasks.base import SPECIFICATION, Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import fill, indented
from sweet.tasks.scores import ScoringRequest, TrajectoryScorer
from sweet.tasks.trajectory import Trajectory, Turn
from sweet.units import count

WRITTEN_BY = "specification_by"
"""The key of a row with the model that wrote the specification."""

TEMPERATURE = 0.7
"""Sampling temperature of all tries but the first."""

LONGEST = 8000
"""Characters of a specification at most."""

_LONGEST_REASON = 600
"""Characters of a reason at most; it has values that model code returned."""

DESCRIBE = """\
You write down what a finished solution does, for a person who has to answer questions about it without ever seeing it.

THE REQUEST
{request}

THE SOLUTION
{reference}

Write the specification of the solution.
- Say everything that decides its result: each number and its unit, each limit and whether the limit itself is \
included, defaults, special cases, empty or wrong input, rounding, order where it matters, and the form of the result.
- Write plain sentences about the matter, as in a contract. No code, no formulas, no names of variables, no steps read \
out line by line: nobody may be able to put the source together again from your words.
- Do not repeat the request. Reply with the specification alone."""

IMPLEMENT = """\
Write the solution that is asked for. It is run against hidden tests, which expect exactly what the specification says.

THE REQUEST
{request}

THE SPECIFICATION
{specification}

Reply with the complete solution alone, with the names and the arguments of the request, as one block of code."""

_LEAKED = (
    "That specification gives away source of the solution, or says it so closely that it can be put together again. "
    "Say the same facts as a person would who has never seen the solution, in sentences about the matter. Reply with "
    "the whole specification alone."
)
_UNUSABLE = "That is no specification. Reply with the whole specification alone, in at most {limit:,} characters."
_FAILED = (
    "Somebody who read only the request and this specification wrote a solution that fails the hidden tests: {why}. So "
    "something is missing, ambiguous or wrong. Write the whole specification again, complete, still without code. "
    "Reply with the specification alone."
)


class DescribeConfig(PricedConfig, WorkersConfig, DeviceConfig, RequestConfig, SeedConfig, TaskConfig):
    main_options = ("model", "url", "out", "task", "split", "num_tasks", "check_model", "check_url", "tries")

    model: str = Field(json_schema_extra=about("Method"))
    """The model that writes the specifications."""
    url: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", OPERATIONAL))
    """OpenAI-compatible server of the model; may be given several times. Without it the model runs in this process."""
    out: Path | None = Field(default=None, json_schema_extra=about("Data", OPERATIONAL))
    """File to write; default: beside the file of tasks, NAME-described.jsonl, or in this folder for a dataset."""
    split: str | None = Field(default=None, json_schema_extra=about("Data"))
    """Split to describe: train, validation or test; default: all tasks of a file, and the split train of a dataset."""
    num_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Describe only the first N tasks; the others are written as they are."""
    check_model: str | None = Field(default=None, json_schema_extra=about("Judge"))
    """The model that checks a specification by solving the task from it; default: the model that writes them."""
    check_url: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", OPERATIONAL))
    """OpenAI-compatible server of that model; may be given several times; default: that of the model."""
    tries: int = Field(default=4, ge=1, json_schema_extra=about("Method"))
    """Specifications that are written for a task until one passes the checks."""
    max_tokens: int = Field(default=1024, ge=1, json_schema_extra=about("Method"))
    """Maximum number of tokens of a reply."""
    redo: bool = Field(default=False, json_schema_extra=about("Data"))
    """Describe the tasks again that have a specification already."""
    concurrency: int = Field(default=32, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tasks that are described at once."""


@dataclass(frozen=True)
class _Described:
    """A task that was tried: its specification, or why it has none."""

    task: Task
    tries: int
    specification: str = ""
    why: Undescribed | None = None


def described_row(task: Task, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a task with the keys of its specification, and without those of an earlier one."""
    row = task.model_dump(mode="json", exclude_defaults=True)
    return {key: value for key, value in row.items() if key not in (SPECIFICATION, WRITTEN_BY)} | dict(keys)


class Describer:
    """Describes many tasks at once.

    Attributes:
        failed: the tasks that could not be described. tries: specifications that were written.
        tokens: those of all requests, by `prompt` and `completion`.
    """

    def __init__(
        self, kind: TaskKind, config: DescribeConfig, reporter: Reporter, budget: Budget | None = None
    ) -> None:
        self.kind, self.config, self.reporter, self.budget = kind, config, reporter, budget
        self.failed: list[Undescribed] = []
        self.tries = 0
        self.tokens: Counter[str] = Counter()

    def describe(self, tasks: Sequence[Task], writer: JsonlWriter) -> dict[str, dict[str, Any]]:
        """Return the keys of the specifications by task, and write each row as soon as it is known.

        Raises:
            Interrupted: the limit of the cost is reached.
        """
        found: dict[str, dict[str, Any]] = {}
        with tempfile.TemporaryDirectory(prefix="sweet-describe-") as folder:
            config, say = self.config, self.reporter.say
            request = ScoringRequest(run=Path(folder), say=say, sandbox=config.sandbox, workers=config.workers)
            with (
                self.kind.open_scorer(request) as scorer,
                self.reporter.progress("tasks", len(tasks)) as bar,
            ):
                asyncio.run(self._all(tasks, scorer, writer, found, bar))
        return found

    async def _all(
        self,
        tasks: Sequence[Task],
        scorer: TrajectoryScorer,
        writer: JsonlWriter,
        found: dict[str, dict[str, Any]],
        bar: Progress,
    ) -> None:
        config, scoring, free = self.config, async_scorer(scorer), asyncio.Semaphore(self.config.concurrency)
        begun = 0
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(client_of(config, "describer", config.model, config.url))
            checker = client
            if config.check_model is not None or config.check_url:
                model, urls = config.check_model or config.model, config.check_url or config.url
                checker = await stack.enter_async_context(client_of(config, "checker", model, urls))

            async def one(task: Task) -> None:
                nonlocal begun
                async with free:
                    if self.budget is not None and self.budget.is_spent():
                        return
                    begun += 1
                    described = await self._one(task, client, checker, scoring)
                self.tries += described.tries
                if described.why is not None:
                    self.failed.append(described.why)
                else:
                    found[task.id] = {SPECIFICATION: described.specification, WRITTEN_BY: client.model}
                    writer.write(described_row(task, found[task.id]))
                bar.advance()

            await run_all(one(task) for task in tasks)
        if self.budget is not None and begun < len(tasks):
            raise self.budget.stopped(f"Done: {count(begun, 'task')}; missing: {len(tasks) - begun:,}.")

    async def _one(self, task: Task, client: ChatClient, checker: ChatClient, scoring: AsyncScorer) -> _Described:
        """Write specifications of a task until one passes the checks, or the tries are used up."""
        held = {"request": [indented(task.problem_description)], "reference": [indented(task.ground_truth)]}
        asked = [Message(role="user", content=fill(DESCRIBE, held))]
        messages, why = asked, Undescribed(task=task.id, problem="failed", what="it was not tried")
        for number in range(1, self.config.tries + 1):
            try:
                text = (await self._chat(client, messages, number)).replies[0].text.strip()
                problem, what, again = await self._check(task, text, checker, scoring)
            except RequestFailed as error:
                what = f"a request failed: {error.what}".removesuffix(".")[:_LONGEST_REASON]
                return _Described(task, number, why=Undescribed(task=task.id, problem="request", what=what))
            if problem is None:
                return _Described(task, number, text)
            why = Undescribed(task=task.id, problem=problem, what=what[:_LONGEST_REASON])
            if problem == "invalid":
                return _Described(task, number, why=why)
            said = Message(role="assistant", content=text[:LONGEST])
            messages = [*asked, *([said] if said.content else []), Message(role="user", content=again)]
        return _Described(task, self.config.tries, why=why)

    async def _check(
        self, task: Task, text: str, checker: ChatClient, scoring: AsyncScorer
    ) -> tuple[Undescribable | None, str, str]:
        """Return the problem of a specification, what it is in words, and how the model is asked again; None and two
        empty texts for a good one."""
        dialogue = [
            Message(role="user", content=task.problem_description),
            Message(role="assistant", content="How must it behave?"),
        ]
        fault = fault_of(text, task, dialogue)
        if fault == "leaked":
            return "leaked", "the specification gives away source of the reference", _LEAKED
        if fault is not None or len(text) > LONGEST:
            said = f"has more than {LONGEST:,} characters" if fault is None else f"is unusable ({fault})"
            return "unusable", f"the specification {said}", _UNUSABLE.format(limit=LONGEST)
        held = {"request": [indented(task.problem_description)], SPECIFICATION: [indented(text)]}
        completion = await self._chat(checker, [Message(role="user", content=fill(IMPLEMENT, held))], 1)
        reply = completion.replies[0].text
        answer = self.kind.move(reply, last=True).answer or ""
        request = Turn(role="user", content=task.problem_description)
        score = await scoring.submit(Trajectory(id=task.id, task=task, dialogue_history=(request,), answer=answer))
        reason = str(score.detail.get("why") or score.outcome)[:_LONGEST_REASON]
        if score.outcome == "invalid":
            return "invalid", f"the task cannot be scored: {reason}", ""
        if score.outcome != "passed":
            what = f"a solution from request and specification fails the hidden tests: {reason}"
            return "failed", what, _FAILED.format(why=reason)
        return None, "", ""

    async def _chat(self, client: ChatClient, messages: Sequence[Message], number: int) -> Completion:
        """Ask a model: greedily at the first try, with a temperature and a seed of its own at later ones."""
        seed = int(digest_of([self.config.seed, number, [message.content for message in messages]])[:7], 16)
        temperature = TEMPERATURE if number > 1 else 0.0
        sampling = Sampling(temperature=temperature, max_tokens=self.config.max_tokens, seed=seed)
        completion = await client.chat(messages, sampling)
        self.tokens += Counter(prompt=completion.prompt_tokens, completion=completion.completion_tokens)
        return completion
