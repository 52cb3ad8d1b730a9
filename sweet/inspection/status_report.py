"""What `sweet status` and `sweet report` say of a run, as types."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweet.json_value import JsonValue
from sweet.runs.progress import AttemptProgress
from sweet.scoring.results.metrics import ComparedMetric
from sweet.stages.prices import Spending


class Fact(BaseModel):
    """Base of what `sweet status` and `sweet report` say of a run."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class AttemptStatus(Fact):
    """The line of one attempt."""

    id: str
    stage: str
    status: Literal["running", "done", "failed", "interrupted", "interrupted (died)"]
    started: datetime
    seconds: float | None
    """Its duration so far; None if its end is unknown, or its start is in the future, by a clock that was set back."""
    metrics: dict[str, JsonValue]
    """The most informative metrics."""
    outputs: list[str]
    of: str = ""
    """Of an attempt that played or scored dialogues the agent, and the tasks that it played."""
    error: str | None
    exit_code: int | None = None
    """Of its command; None while it runs, and if its process died."""
    log: str
    progress: AttemptProgress | None = None
    """How far it is, while it runs."""
    host: str | None = None
    """Where it runs, or did, if that cannot be seen from here."""


class ArtifactStatus(Fact):
    """The line of one artifact."""

    id: str
    kind: str
    path: str
    rows: int | None
    bytes: int
    sha256: str | None
    status: Literal["partial", "done"]
    attempt: str
    inputs: list[str]
    agent: str | None = None
    """The agent of dialogues, an actor of the run by its id; None if it is not recorded."""
    of: str = ""
    """Of dialogues and scores the agent, and the tasks that it played: `actor-1 on test tasks`."""
    stale: str | None
    """Why it is stale; None if it is not."""


class ResultStatus(Fact):
    """The result of a run: `sweet.scoring.results.run_result` says which it is."""

    scores: str
    agent: str
    """The agent that the run keeps, an actor of the run by its id."""
    of: str
    """The agent, and the tasks that it played: `actor-1 on test tasks`."""
    rate: dict[str, float]
    """The first metric of the evaluation that has an interval, with it."""
    first: str | None = None
    """The first agent, where it was evaluated on the same tasks, and is another one."""
    paired: ComparedMetric | None = None
    """The same metric of the agent (b) against the first agent (a), paired by task."""


class StatusReport(Fact):
    """The content of `sweet status`."""

    run: str
    task: str
    created: datetime
    sweet_version: str
    attempts: list[AttemptStatus]
    artifacts: list[ArtifactStatus]
    unknown: list[str] = Field(default_factory=list)
    """Files in the artifacts' folders that are not in the manifest."""
    bytes: int
    """The size of all its files, also of screenshots, logs and what the manifest does not list."""
    result: ResultStatus | None = None
    """None where no agent has been evaluated."""
    next: list[str]
    """The next commands, the most likely first."""
    advice: str | None = None
    """What to change before the newest call is repeated, where that would fail again."""
    spent: Spending | None = None
    """The tokens of all attempts, and their cost; None where they cannot be read."""
    problem: str | None = None
    """Why they cannot be read."""

    def as_json(self) -> dict[str, Any]:
        return {"stage": "status", **self.model_dump(mode="json"), "metrics": {}}
