"""`sweet data describe`: the specification of each task, in plain words, for a human that shall not see the code.

A model reads request and reference and writes the specification. It is kept if it says enough and gives nothing away:
the search for leaks (sweet.humans.leaks) finds no source in it, and what a model writes that sees request and
specification alone passes the hidden tests, in the sandbox. Otherwise the first model is asked again, with the reason,
a bounded number of times. The first try is greedy, later ones are sampled. Texts of models are data here: they are
searched, filled into prompts indented, and run in the sandbox only.

Each specification is written to `OUT.part` as soon as it is known, and the whole file, with all tasks in their order,
in one step at the end; so a call that was killed goes on, and what is described already costs nothing. The tokens so
far are in `OUT.tokens.json` until then. A task that cannot be described keeps its row, without a specification:
`rollout --human spec` refuses it.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field

from sweet.datasets.metrics import DescribeMetrics, Undescribable, Undescribed
from sweet.errors import InputError, UsageError
from sweet.files import check_target, replacing
from sweet.gathering import run_all
from sweet.humans.faults import fault_of
from sweet.llm.base import ChatClient, Effort, RequestFailed, Sampling
from sweet.llm.connect import client_of
from sweet.runs.jsonl import JsonlWriter, encode, read_rows, scan_jsonl
from sweet.runs.tokens import TokenMeter, metering, read_tokens
from sweet.stages.base import OPERATIONAL, Reporter, StageResult, about, digest_of
from sweet.stages.options import DeviceConfig, RequestConfig, SeedConfig, TaskConfig, WorkersConfig
from sweet.stages.prices import Budget, PricedConfig, given_prices
from sweet.tasks.async_scorer import AsyncScorer, open_async_scorer
from sweet.tasks.base import SPECIFICATION, Message, Task
from sweet.tasks.kind import TaskKind
from sweet.tasks.prompts import fill, indented
from sweet.tasks.registry import task_kind
from sweet.tasks.scores import ScoringRequest
from sweet.tasks.splits import load_split
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

DESCRIBE, IMPLEMENT = (
    (resources.files("sweet.datasets") / "texts" / f"{name}.txt").read_text("utf-8").strip()
    for name in ("describe", "implement")
)
"""The prompts of the model that writes a specification, and of the one that solves the task by it."""

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
    effort: Effort | None = Field(default=None, json_schema_extra=about("Method"))
    """How much both models are asked to think; default: as they do by themselves."""
    redo: bool = Field(default=False, json_schema_extra=about("Data"))
    """Describe the tasks again that have a specification already."""
    concurrency: int = Field(default=32, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tasks that are described at once."""


Keys = dict[str, str]
"""The keys of a row with its specification and the model that wrote it; empty without one."""


class Describer:
    """Describes many tasks at once.

    Attributes:
        known: the keys of specifications by task. failed: the tasks that could not be described.
        tries: specifications that were written.
    """

    def __init__(self, kind: TaskKind, config: DescribeConfig, reporter: Reporter, budget: Budget | None) -> None:
        self.kind, self.config, self.reporter, self.budget = kind, config, reporter, budget
        self.known: dict[str, Keys] = {}
        self.failed: list[Undescribed] = []
        self.tries = 0

    async def describe(self, tasks: Sequence[Task], writer: JsonlWriter) -> None:
        """Describe tasks, and write the row of each as soon as it is known.

        Raises:
            Interrupted: the limit of the cost is reached.
        """
        config, say, free = self.config, self.reporter.say, asyncio.Semaphore(self.config.concurrency)
        begun = 0
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sweet-describe-"))
            request = ScoringRequest(run=Path(folder), say=say, sandbox=config.sandbox, workers=config.workers)
            scoring = await stack.enter_async_context(open_async_scorer(self.kind, request))
            bar = stack.enter_context(self.reporter.progress("tasks", len(tasks)))
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
                    found = await self._one(task, client, checker, scoring)
                if isinstance(found, Undescribed):
                    self.failed.append(found)
                else:
                    self.known[task.id] = {SPECIFICATION: found, WRITTEN_BY: client.model}
                    writer.write(_row(task, self.known[task.id]))
                bar.advance()

            await run_all(one(task) for task in tasks)
        if self.budget is not None and begun < len(tasks):
            raise self.budget.stopped(f"Done: {count(begun, 'task')}; missing: {len(tasks) - begun:,}.")

    async def _one(
        self, task: Task, client: ChatClient, checker: ChatClient, scoring: AsyncScorer
    ) -> str | Undescribed:
        """Write specifications of a task until one passes the checks, or the tries are used up."""
        held = {"request": [indented(task.problem_description)], "reference": [indented(task.ground_truth)]}
        asked = [Message(role="user", content=fill(DESCRIBE, held))]
        messages, why = asked, Undescribed(task=task.id, problem="failed", what="it was not tried")
        for number in range(1, self.config.tries + 1):
            self.tries += 1
            try:
                text = (await self._chat(client, messages, number)).strip()
                problem, what, again = await self._check(task, text, checker, scoring)
            except RequestFailed as error:
                problem, what, again = "request", f"a request failed: {error.what}".removesuffix("."), ""
            if problem is None:
                return text
            why = Undescribed(task=task.id, problem=problem, what=what[:_LONGEST_REASON])
            if not again:
                break
            said = Message(role="assistant", content=text[:LONGEST])
            messages = [*asked, *([said] if said.content else []), Message(role="user", content=again)]
        return why

    async def _check(
        self, task: Task, text: str, checker: ChatClient, scoring: AsyncScorer
    ) -> tuple[Undescribable | None, str, str]:
        """Return the problem of a specification, None if it is good, what it is in words, and how the model is asked
        again, empty if that is of no use."""
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
        reply = await self._chat(checker, [Message(role="user", content=fill(IMPLEMENT, held))], 1)
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

    async def _chat(self, client: ChatClient, messages: Sequence[Message], number: int) -> str:
        """Ask a model: greedily at the first try, with a temperature and a seed of its own at later ones."""
        seed = int(digest_of([self.config.seed, number, [message.content for message in messages]])[:7], 16)
        temperature = TEMPERATURE if number > 1 else 0.0
        sampling = Sampling(temperature=temperature, max_tokens=self.config.max_tokens, seed=seed)
        return (await client.chat(messages, sampling)).replies[0].text


def run_data_describe(source: str | None, config: DescribeConfig, reporter: Reporter) -> StageResult[DescribeMetrics]:
    """Describe the tasks of a file or a dataset. The result's `run` is the file that was written.

    A task for which no try passes the checks is listed in the metrics, with the reason.

    Raises:
        UsageError: there is no such kind, dataset or split, the tasks have no code to describe, or the file cannot be
            written.
        InputError: there is no such file, or a row of it is not a task.
        ServerError: a server cannot be reached; what was described is kept.
        SweetError: there is no sandbox.
        Interrupted: the limit of the cost is reached; what was described is kept.
    """
    began, prices = time.monotonic(), given_prices(config)
    kind = task_kind(config.task)
    if kind.visual:
        what = f"The human of {kind.name} tasks sees pages: there is no code that a specification could replace."
        raise UsageError(what, where=f"--task {kind.name}", fix="--task code")
    source = source or kind.default_tasks()
    tasks = load_split(kind, source, config.split).tasks
    out = config.out or _default_out(kind, source, config)
    check_target(out)
    journal = out.with_name(f"{out.name}.part")
    chosen = tasks[: config.num_tasks]
    again = {task.id for task in chosen} if config.redo else set()
    counted = out.with_name(f"{out.name}.tokens.json")
    meter = TokenMeter(counted, read_tokens(counted))
    budget = None if prices is None else Budget(prices, meter, config.max_cost)
    work = Describer(kind, config, reporter, budget)
    work.known = {task.id: keys for task in tasks if (keys := _keys(task.model_dump(mode="json")))}
    if out.is_file() and not (Path(source).is_file() and out.samefile(source)):
        work.known |= _rows_of(tasks, out, read_rows(out))
    work.known = {name: keys for name, keys in work.known.items() if name not in again}
    if journal.exists():
        work.known |= _rows_of(tasks, journal, enumerate(scan_jsonl(journal), 1))  # its last line may be torn
    missing = [task for task in chosen if task.id not in work.known]
    kept = len(chosen) - len(missing)
    if kept:
        reporter.say(f"Described already: {count(kept, 'task')}; missing: {len(missing):,}.")
    if missing:
        with JsonlWriter(journal) as writer, metering(meter):
            asyncio.run(work.describe(missing, writer))
    with replacing(out) as file:
        for task in tasks:
            file.write(encode(_row(task, work.known.get(task.id, {}))) + b"\n")
    tokens = meter.counts.values()
    journal.unlink(missing_ok=True)
    counted.unlink(missing_ok=True)
    metrics = DescribeMetrics(
        tasks=len(tasks),
        described=len(missing) - len(work.failed),
        kept=kept,
        failed=len(work.failed),
        tries=work.tries,
        prompt_tokens=sum(one.prompt for one in tokens),
        completion_tokens=sum(one.completion for one in tokens),
        out=str(out),
        undescribed=sorted(work.failed, key=lambda one: one.task),
        seconds=round(time.monotonic() - began, 3),
        **({} if budget is None else {"cost": budget.spent()}),
    )
    if metrics.failed and metrics.failed < len(chosen):
        reporter.warn(f"{in_words(metrics)}. rollout --human spec refuses them; the same command tries them again.")
    return StageResult("data describe", out, metrics)


def in_words(metrics: DescribeMetrics) -> str:
    """Say how many tasks have no specification, and why the first of them has none."""
    first, tried = metrics.undescribed[0], metrics.described + metrics.kept + metrics.failed
    return f"{metrics.failed:,} of {count(tried, 'task')} have no specification; {first.task}: {first.what}"


def _default_out(kind: TaskKind, source: str, config: DescribeConfig) -> Path:
    path = Path(source)
    if kind.has_dataset(source) or not path.is_file():
        return Path(f"{source}-{config.split or 'train'}-described.jsonl")
    return path if path.stem.endswith("-described") else path.with_name(f"{path.stem}-described.jsonl")


def _rows_of(tasks: Iterable[Task], file: Path, rows: Iterable[tuple[int, dict[str, Any]]]) -> dict[str, Keys]:
    """Return the keys of specifications in a file, by the ids of tasks that are the same as when they were described.

    Args:
        rows: of the file, with their lines.

    Raises:
        InputError: the file has rows of other tasks.
    """
    same = {task.id: task for task in tasks}
    found: dict[str, Keys] = {}
    for line, row in rows:
        task = same.get(str(row.get("id")))
        if task is None:
            what = f"The file has the task {str(row.get('id'))[:80]!r}, which is none of these: it would be lost."
            raise InputError(what, path=file, line=line, fix="name another --out")
        keys = _keys(row)
        same_task = (row.get("problem_description"), row.get("ground_truth")) == (
            task.problem_description,
            task.ground_truth,
        )
        if keys and same_task:
            found[task.id] = keys
    return found


def _row(task: Task, keys: Keys) -> dict[str, Any]:
    """Return the row of a task with these keys, and without those of an earlier specification."""
    row = task.model_dump(mode="json", exclude_defaults=True)
    return {key: value for key, value in row.items() if key not in (SPECIFICATION, WRITTEN_BY)} | keys


def _keys(row: Mapping[str, Any]) -> Keys:
    text = row.get(SPECIFICATION)
    if not isinstance(text, str) or not text.strip():
        return {}
    return {key: row[key] for key in (SPECIFICATION, WRITTEN_BY) if isinstance(row.get(key), str)}


def rollout_command(metrics: DescribeMetrics, task: str) -> str:
    """Return the command that plays the described tasks."""
    kind = "" if task == "code" else f" --task {shlex.quote(task)}"
    return f"sweet rollout --tasks {shlex.quote(metrics.out)}{kind} --sim MODEL --sim-url URL --human spec"
