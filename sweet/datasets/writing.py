"""A model writes the tasks of a file, or a part of each: what `sweet data describe` and `sweet data synthesise` share.

What the model writes for a task is kept once it passes the command's checks; until then the model is asked again, with
the reason, a bounded number of times. Texts of models are data here: they are searched, filled into prompts, and run in
the sandbox only.

A row is written to `OUT.part` as soon as it is known, as is each task that failed, and the whole file in one step at
the end; so a call that was killed goes on and asks for nothing again, but for what a server refused. The tokens so far
are in `OUT.tokens.json` until then.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, RootModel

from sweet.datasets.metrics import Unwritten
from sweet.files import check_target, replacing
from sweet.gathering import run_all
from sweet.llm.base import ChatClient, Effort, RequestFailed, Sampling
from sweet.llm.connect import client_of
from sweet.runs.damage import drop_damaged
from sweet.runs.jsonl import JsonlWriter, encode, scan_jsonl, sums_path
from sweet.runs.tokens import TokenMeter, metering, read_tokens
from sweet.stages.base import OPERATIONAL, Reporter, about, digest_of
from sweet.stages.failures import Failures
from sweet.stages.options import DeviceConfig, RequestConfig, SeedConfig, WorkersConfig
from sweet.stages.prices import Budget, PricedConfig, given_prices
from sweet.tasks.base import Message
from sweet.tasks.kind import TaskKind
from sweet.tasks.scores import AsyncScorer, ScoringRequest, for_event_loop
from sweet.units import count

Row = dict[str, Any]
_JournalRow = RootModel[Row]

LONGEST = 8000
"""Characters of a text that are kept at most."""

LONGEST_REASON = 600
"""Characters of a reason at most; it has values that model code returned."""


class WriterConfig(PricedConfig, WorkersConfig, DeviceConfig, RequestConfig, SeedConfig):
    model: str = Field(json_schema_extra=about("Method"))
    """The model that writes the specifications or the tasks."""
    url: list[str] = Field(default_factory=list, json_schema_extra=about("Servers", OPERATIONAL))
    """OpenAI-compatible server of the model; may be given several times. Without it the model runs in this process."""
    out: Path | None = Field(default=None, json_schema_extra=about("Data", OPERATIONAL))
    """File to write; default: beside the file that is given, NAME-described.jsonl or NAME-tasks.jsonl, or in this
    folder."""
    num_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Describe only the first N tasks, the others are written as they are; or synthesise N tasks, by default one on
    each topic."""
    tries: int = Field(default=4, ge=1, json_schema_extra=about("Method"))
    """Texts that the model writes for a task until one passes the checks."""
    max_tokens: int = Field(default=2048, ge=1, json_schema_extra=about("Method"))
    """Maximum number of tokens of a reply."""
    effort: Effort | None = Field(default=None, json_schema_extra=about("Method"))
    """How much the models are asked to think; default: as they do by themselves."""
    concurrency: int = Field(default=32, ge=1, json_schema_extra=about("Machine", OPERATIONAL))
    """Tasks that are written at once."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a text of a model: its sort, in words, how the model is asked again (empty if that is of no
    use), and the error of a request that failed."""

    problem: str
    what: str
    again: str = ""
    error: RequestFailed | None = None


class Writer:
    """Writes the rows of one file.

    Args:
        temperatures: of the first try for a task, and of later ones.

    Attributes:
        journal: the file of rows until the end. written: rows of this call. failed: the tasks without one.

    Raises:
        UsageError: the file cannot be written, or there is a limit of the cost without prices.
        InputError: the file of prices is invalid.
    """

    def __init__(self, config: WriterConfig, reporter: Reporter, out: Path, temperatures: tuple[float, float]) -> None:
        check_target(out)
        self.config, self.reporter, self.out, self._temperatures = config, reporter, out, temperatures
        self.journal, self._counted = (out.with_name(f"{out.name}.{end}") for end in ("part", "tokens.json"))
        self.written: list[Row] = []
        self.failed: list[Unwritten] = []
        self._failures, self._tries, self._began = Failures(), 0, time.monotonic()
        prices = given_prices(config)
        self._meter = TokenMeter(self._counted, read_tokens(self._counted))
        self._budget = Budget(prices, self._meter, config.max_cost)

    def unfinished(self) -> list[Row]:
        """Return the rows that a call wrote which did not finish; its failures are those of this call."""
        rows = []
        if self.journal.exists():
            drop_damaged(self.journal, _JournalRow, self.reporter.warn)
            rows = list(scan_jsonl(self.journal))
        for row in rows:
            if row.keys() == Unwritten.model_fields.keys():
                self._fail(Unwritten.model_validate(row))
        return [row for row in rows if row.keys() != Unwritten.model_fields.keys()]

    def _fail(self, task: Unwritten, error: RequestFailed | None = None) -> None:
        self.failed.append(task)
        self._failures.add(error or task.what)

    @asynccontextmanager
    async def opened(self, kind: TaskKind) -> AsyncIterator[tuple[ChatClient, AsyncScorer, ScoringRequest]]:
        """Open the client of the model, and a scorer as the request says. Tokens of clients that are opened within are
        counted."""
        config = self.config
        with tempfile.TemporaryDirectory(prefix="sweet-write-") as folder, metering(self._meter):
            request = ScoringRequest(Path(folder), self.reporter.say, sandbox=config.sandbox, workers=config.workers)
            async with (
                for_event_loop(kind.open_scorer(request)) as scoring,
                client_of(config, "writer", config.model, config.url) as client,
            ):
                yield client, scoring, request

    async def write(self, names: Collection[str], write_one: Callable[[str], Awaitable[Row | Fault]]) -> None:
        """Write the row of each task, or what is wrong with it, as soon as it is known.

        Raises:
            Interrupted: the limit of the cost is reached.
        """
        free, begun, budget = asyncio.Semaphore(self.config.concurrency), 0, self._budget
        with JsonlWriter(self.journal, sums=True) as journal, self.reporter.progress("tasks", len(names)) as bar:

            async def write(name: str) -> None:
                nonlocal begun
                async with free:
                    if budget.is_spent() or self._failures.is_hopeless(len(self.written)):
                        return
                    begun += 1
                    result = await write_one(name)
                if isinstance(result, Fault):
                    task = Unwritten(task=name, problem=result.problem, what=result.what[:LONGEST_REASON])
                    self._fail(task, result.error)
                    if result.error is None:
                        journal.write(task)
                else:
                    self.written.append(result)
                    journal.write(result)
                bar.advance()

            await run_all(map(write, names))
        missing = len(names) - begun
        if missing and budget.is_spent():
            raise budget.stopped(f"Done: {count(begun, 'task')}; missing: {missing:,}.")
        if missing:
            self.reporter.warn(f"No more tasks are begun: {self._failures.summary()}.")

    async def ask(
        self, client: ChatClient, prompt: str, check: Callable[[str], Awaitable[Fault | None]]
    ) -> str | Fault:
        """Return the first text that passes the check, or the fault of the last one."""
        messages, tried = [Message(role="user", content=prompt)], 0
        while True:
            tried += 1
            self._tries += 1
            try:
                text = (await self.chat(client, messages, again=tried > 1)).strip()
                fault = await check(text)
            except RequestFailed as error:
                return Fault("request", f"a request failed: {error.what}".removesuffix("."), error=error)
            if fault is None:
                return text
            if not fault.again or tried == self.config.tries:
                return fault
            messages += [Message(role="assistant", content=text[:LONGEST])] if text else []
            messages.append(Message(role="user", content=fault.again))

    async def chat(self, client: ChatClient, messages: Sequence[Message], *, again: bool = False) -> str:
        """Ask a model, with a seed of the messages' own."""
        seed = int(digest_of([self.config.seed, [message.content for message in messages]])[:7], 16)
        sampling = Sampling(temperature=self._temperatures[again], max_tokens=self.config.max_tokens, seed=seed)
        return (await client.chat(messages, sampling)).replies[0].text

    def finish(self, rows: Collection[Row], unchanged: int, lack: str) -> dict[str, Any]:
        """Write the file, unless it would have no row, and return the fields of `sweet.datasets.metrics.WriterMetrics`.

        Args:
            unchanged: tasks that needed no work.
            lack: what the tasks that failed lack, for a warning.
        """
        if rows:
            with replacing(self.out) as file:
                file.writelines(encode(row) + b"\n" for row in rows)
        for journal in (self.journal, sums_path(self.journal)):
            journal.unlink(missing_ok=True)
        tokens = self._meter.counts.values()
        self._counted.unlink(missing_ok=True)
        if self.failed and (self.written or unchanged):
            summary = in_words(self.failed, len(self.written) + unchanged, lack)
            self.reporter.warn(f"{summary}. The same command tries again.")
        return {
            "tasks": len(rows),
            "written": len(self.written),
            "kept": unchanged,
            "failed": len(self.failed),
            "tries": self._tries,
            "prompt_tokens": sum(counts.prompt for counts in tokens),
            "completion_tokens": sum(counts.completion for counts in tokens),
            "out": str(self.out),
            "failures": sorted(self.failed, key=lambda failure: failure.task),
            "reasons": self._failures.reasons(),
            "seconds": round(time.monotonic() - self._began, 3),
            "cost": self._budget.spent(),
        }


def in_words(failed: Sequence[Unwritten], successes: int, lack: str) -> str:
    """Say how many tasks failed, beside so many others, and why the first of them did."""
    first = min(failed, key=lambda failure: failure.task)
    return f"{len(failed):,} of {count(len(failed) + successes, 'task')} {lack}; {first.task}: {first.what}"
