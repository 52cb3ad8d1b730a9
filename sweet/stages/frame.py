"""The frame of a stage: everything that every stage needs around its own work, in one place.

A stage is a function `(run, config, reporter) -> StageResult`. It finds what it reads, opens its frame and works in it:

    def run_name(run, config, reporter):
        source = run.find("rollouts", config.from_, needed_by="name")
        with Frame("name", run, config, reporter, inputs=[source], models=[AskedModel("agent", ...)]) as frame:
            rows = frame.rows("scores", ScoresMeta(...))       # the artifact, resumed as the table of stages says
            ...                                                # the work: rows.write(row), frame.progress(...)
            artifact = frame.finish(rows, metrics)
            return frame.result(metrics, artifact, failed=failed, tried=tried, items="dialogues")

What the frame does, in this order:

    before the attempt   reads the prices (`--prices`) and decides how the models without an address are run, so that
                         an error in an option is no attempt
    the attempt          is recorded; its inputs are verified (`--verify`), and a stale one is warned of
    while it works       `Frame` is the reporter of the stage: messages go to the reporter of the call, and progress
                         also to the file that `sweet status` reads (`sweet.stages.live`). Artifacts are continued or
                         begun again as the table of stages says (`sweet.runs.stages`). Models are opened under
                         their role (`client`), counted, and recorded in the environment. `budget` is what the run may
                         cost; it is None without prices. `failures` counts the items that failed, by their reasons.
    at the end           `finish` records the metrics with the artifact, and `result` raises TooManyFailures if more
                         items failed than `--fail-on-error` allows. Files are closed, then the attempt is ended.

A stage gets objects (a client, a budget, rows to write), and no option of these concerns passes through its code.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from sweet.llm.base import ChatClient, Role
from sweet.llm.connect import client_of
from sweet.llm.local import LocalServing
from sweet.runs.attempt import Draft
from sweet.runs.content import make_durable
from sweet.runs.damage import drop_damaged
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.manifest import Artifact, Kind
from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.runs.tokens import tokens_of_run
from sweet.stages.base import PlannedConfig, Progress, Reporter, StageResult
from sweet.stages.failures import Failures, are_too_many
from sweet.stages.live import LiveReporter
from sweet.stages.prices import Budget, PricedConfig, given_prices
from sweet.stages.record import Meta, Record, RecordedRecord

R = TypeVar("R", bound=RecordedRecord)
M = TypeVar("M", bound=Record)


@dataclass(frozen=True)
class AskedModel:
    """A model that a stage asks for text.

    Attributes:
        urls: its servers; without any it is run on this machine.
        images: maximum number of images of a prompt.
        tools: whether it is offered tools.
    """

    role: Role
    name: str
    urls: Sequence[str] = ()
    images: int = 0
    tools: bool = False


def plan_serving(config: Any, models: Iterable[AskedModel], reporter: Reporter, *, computed: int = 0) -> LocalServing:
    """Decide how models without an address are run; see `LocalServing.plan` for errors.

    Args:
        config: has the options of the engine (`sweet.stages.options.LocalModelsConfig`).
        computed: number of further models in this process that need GPU memory.
    """
    models = list(models)
    serving = LocalServing(
        engine=config.local_engine,
        device=config.device,
        options=tuple(config.vllm_options),
        startup_timeout=config.startup_timeout,
        say=reporter.say,
        warn=reporter.warn,
        other_users=computed,
        images={model.name: model.images for model in models if model.images and not model.urls},
        tools={model.name for model in models if model.tools},
    )
    serving.plan((model.name, model.urls) for model in models)
    return serving


class Rows(JsonlWriter):
    """The rows of an artifact that is being written."""

    def __init__(self, draft: Draft, *, sums: bool) -> None:
        super().__init__(draft.path, sums=sums)
        self.draft = draft


class Frame:
    """The frame of one call of a stage (implements `sweet.stages.base.Reporter`).

    Args:
        stage: its name.
        config: is recorded, and identifies the attempt.
        inputs: the artifacts that it reads.
        models: that it asks for text; None for a stage that asks none.
        computed: number of further models in this process that need GPU memory.
        environment: is recorded with the attempt.

    Attributes:
        attempt: exists within the block, like `live` and `budget`.
        clients: the models that were opened.
        failures: the items that failed.
    """

    def __init__(
        self,
        stage: str,
        run: Run,
        config: PlannedConfig,
        reporter: Reporter,
        *,
        inputs: Sequence[Artifact] = (),
        models: Sequence[AskedModel] | None = None,
        computed: int = 0,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        self.stage, self.run, self._reporter, self._inputs = stage, run, reporter, inputs
        self._config: Any = config
        self._models, self._computed = models, computed
        self._environment = dict(environment or {})
        self.clients: list[ChatClient] = []
        self.failures = Failures()

    @cached_property
    def serving(self) -> LocalServing:
        """How the models without an address are run."""
        return plan_serving(self._config, self._models or (), self._reporter, computed=self._computed)

    def __enter__(self) -> Self:
        config = self._config
        prices = given_prices(config) if isinstance(config, PricedConfig) else None
        serving = None if self._models is None else self.serving
        with ExitStack() as stack:
            warn, verify = self._reporter.warn, config.verify
            attempted = self.run.attempt(self.stage, config, self._inputs, self._environment, verify=verify, warn=warn)
            self.attempt = stack.enter_context(attempted)
            self.live = LiveReporter(self._reporter, self.attempt)
            self.budget = Budget()
            if prices is not None:
                before = tokens_of_run(self.run.path, self.run.manifest())
                self.budget = Budget(prices, self.attempt.tokens, config.max_cost, before)
            if serving is not None:
                serving.logs = str(self.attempt.log_path.with_suffix(".vllm-"))
                serving.record = self.attempt.environment
            self._began = time.monotonic()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    @property
    def seconds(self) -> float:
        """Since the attempt began."""
        return round(time.monotonic() - self._began, 3)

    # The reporter of the stage

    def say(self, text: str) -> None:
        self.live.say(text)

    def warn(self, text: str) -> None:
        self.live.warn(text)

    def progress(self, title: str, total: int | None) -> AbstractContextManager[Progress]:
        return self.live.progress(title, total)

    # Models

    @asynccontextmanager
    async def client(self, model: AskedModel) -> AsyncIterator[ChatClient]:
        """Open a model; its tokens are counted for the attempt, and its name is recorded as its server has it.

        Raises:
            UsageError: it cannot be loaded, or a server does not serve it.
            ServerError: a server cannot be reached.
        """
        async with client_of(self._config, model.role, model.name, model.urls, self.serving) as client:
            self.attempt.environment[f"{model.role}_model"] = client.model
            self.clients.append(client)
            yield client

    def cost_of(self, draft: Draft) -> float | None:
        """Return what an artifact has cost, earlier attempts included; None without prices."""
        if self.budget.prices is None:
            return None
        self.attempt.tokens.write()
        return self.budget.prices.cost(tokens_of_run(self.run.path, self.run.manifest(), artifact=draft.id))

    # Artifacts

    def artifact(self, kind: Kind, meta: Meta, suffix: str = "") -> Draft:
        """Begin an artifact, or continue the one that an earlier attempt with the same settings began; see
        `ActiveAttempt.start_artifact` for the arguments and the errors."""
        stage = stage_named(self.stage)
        resumes = "never" if stage is None else stage.resumes
        return self.attempt.start_artifact(
            kind,
            suffix,
            meta.as_json(),
            resume=resumes == "always" or (resumes == "if asked" and self._config.resume),
            restart=resumes == "never",
            allow_new=getattr(self._config, "new", True),
        )

    def rows(self, kind: Kind, meta: Meta, row: type[BaseModel] | None = None) -> Rows:
        """Begin or continue an artifact of rows; see `artifact` and `writer`."""
        return self.writer(self.artifact(kind, meta, ".jsonl"), row)

    def writer(self, draft: Draft, row: type[BaseModel] | None = None) -> Rows:
        """Open an artifact of rows, which is closed with the frame.

        Args:
            row: the form of rows of one that is resumed, whose damaged rows are dropped.
        """
        if row is not None:
            drop_damaged(draft.path, row, self.warn)
        rows = Rows(draft, sums=row is not None)
        self._stack.callback(rows.close)
        return rows

    @cached_property
    def log(self) -> JsonlWriter:
        """The JSONL log of the attempt: its failures, or the metrics of its steps."""
        return self._stack.enter_context(JsonlWriter(self.attempt.metrics_path))

    def made_before(self, record: type[R], drafts: Sequence[Draft]) -> R | None:
        """Return the metrics of artifacts that an earlier attempt has made (`made`); None where none has.

        Raises:
            InputError: one is not as it was finished.
        """
        ids = {draft.id for draft in drafts}
        earlier = [attempt for attempt in self.run.manifest().attempts if ids <= {*attempt.outputs} and attempt.metrics]
        if not earlier or not all(draft.resumed for draft in drafts):
            return None
        for draft in drafts:
            if (artifact := self.run.artifact(draft.id)).sha256 is not None:
                self.run.verify(artifact, sums=self._config.verify)
        self.say(f"{drafts[0].id} is finished already.")
        return record.read(earlier[-1].metrics)

    def record(self, metrics: Record) -> None:
        """Record the metrics of the attempt."""
        self.attempt.metrics.update(metrics.as_json())

    def made(self, metrics: Record, drafts: Sequence[Draft]) -> None:
        """Record that artifacts are whole and only need to be finished, after which no call makes them again; what that
        would take, such as a checkpoint, can be removed."""
        for draft in drafts:
            make_durable(draft.path)
        self.record(metrics)
        self.attempt.record()

    def finish(self, output: Rows | Draft, metrics: Record, *, made_from: Sequence[Artifact] = ()) -> Artifact:
        """Record an artifact as done, with the metrics; see `ActiveAttempt.finish_artifact`."""
        self.record(metrics)
        if isinstance(output, Rows):
            output.close()
            return self.attempt.finish_artifact(output.draft, output.rows, made_from=made_from)
        return self.attempt.finish_artifact(output, made_from=made_from)

    def result(
        self,
        metrics: M,
        *artifacts: Artifact,
        failed: int = 0,
        tried: int = 0,
        items: str = "items",
        stopped: bool = False,
    ) -> StageResult[M]:
        """Return the result of the stage.

        Args:
            failed: items that failed, of those that this call tried.
            stopped: see `StageResult`.

        Raises:
            TooManyFailures: more failed than `--fail-on-error` allows.
        """
        result = StageResult(self.stage, self.run.path, metrics, [*artifacts], stopped=stopped)
        allowed = getattr(self._config, "fail_on_error", 0)
        if are_too_many(failed, tried, allowed):
            error = self.failures.too_many(f"{failed:,} of {tried:,} {items}", self.attempt.metrics_path)
            error.result = result
            raise error
        if self.failures.count:
            self.warn(f"{failed:,} of {tried:,} {items} failed: {self.failures.summary()}.")
        return result
