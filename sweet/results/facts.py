"""The facts about a run: what `sweet report --json` prints, and what pages and Markdown texts are written from."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import Field

from sweet.inspection.status_report import ArtifactStatus, AttemptStatus, Fact
from sweet.json_value import JsonValue
from sweet.online.metrics import OnlineMetrics
from sweet.scoring.results.metrics import ComparedMetric
from sweet.stages.prices import Spending
from sweet.stages.record import Flat, Record
from sweet.units import rate_bounds, rate_value

MAX_VALUE = 1e15
"""No metric of a run is larger. A larger value was not written by this program and would break every scale."""


def number(value: object) -> float | None:
    """Return a value of a manifest or a file as a finite number; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_VALUE:
        return None
    return float(value) if math.isfinite(value) else None


def words(value: object) -> str:
    """Return a value of a manifest as text; empty for None."""
    return "" if value is None else str(value)


class Rate(Fact):
    """A mean with the bounds of its 95 % interval, if it has one."""

    name: str
    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def value_text(self) -> str:
        """The mean, in the unit of the metric."""
        return rate_value(self.mean, self.low, self.high)

    @property
    def bounds_text(self) -> str:
        """The interval; empty without one."""
        return rate_bounds(self.mean, self.low, self.high)

    @property
    def text(self) -> str:
        """The mean with its interval: `42.2 % [29.7, 53.1]`."""
        return f"{self.value_text} {self.bounds_text}".rstrip()


class AttemptFact(AttemptStatus):
    """One call of a stage: the fields of `sweet status`, and its settings."""

    changed: dict[str, JsonValue]
    """The settings that differ from the defaults; all settings if the stage is unknown."""
    defaults: dict[str, JsonValue]
    """The other settings."""
    environment: dict[str, str]
    command: str | None
    """The command line that repeats it; None if the stage is unknown."""


class Point(Fact):
    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(Fact):
    name: str
    points: list[Point]


class ScoresFact(Fact):
    """One evaluation."""

    id: str
    sha256: str | None
    status: str
    stale: str | None
    rollouts: str | None
    agent: str
    dataset: str
    sim: str
    scorer: str
    sandbox: str
    max_turns: int | None
    trajectories: int | None
    tasks: int | None
    trained_on_tasks: int | None
    """Those of the tasks that the agent was trained on; None where this is not known."""
    rates: list[Rate]
    """The most informative first."""
    faults: int | None
    invalid_tasks: int | None
    cost_per_solved_task: float | None = None
    """What the dialogues cost for each task that one of them solved; None without prices, and where none was solved."""
    metrics: dict[str, JsonValue]
    """All that `sweet eval` has recorded; empty while it is unfinished."""
    against: str
    """The scores that they were compared with, RUN:scores-2; empty if they were not compared."""
    win_rate: Rate | None
    """Share of the tasks on which this run's reward is higher than the reward of `against`."""


class ComparisonFact(Fact):
    """The trained actor and the agent it was trained from, on the tasks that both played."""

    before: str
    after: str
    tasks: int
    figures: dict[str, ComparedMetric]
    """The paired metrics, A before and B after the training, as in `sweet compare`."""
    warnings: list[str]
    """Reasons why the comparison is unfair, in sentences."""


class DialoguesFact(Fact):
    """The dialogues of one rollouts artifact."""

    rollouts: str
    scores: str | None
    """The id of the newest scores of them."""
    agent: str
    dataset: str
    count: int
    ends: dict[str, int]
    human_faults: dict[str, int]
    outcomes: dict[str, int]


class OnlineFact(Fact):
    """An online training: many steps, each of which plays its own dialogues."""

    algorithm: str
    metrics: OnlineMetrics
    """What it has recorded when it ended; the defaults while it is unfinished."""
    curve: dict[str, list[Point]]
    """Reward, success and validation over the tokens that the agent had written."""


class TrainingFact(Fact):
    """The training of one model."""

    artifact: str
    attempts: list[str]
    steps: int
    together: int
    """The number of steps that each point of a curve is the mean of."""
    series: dict[str, list[Point]]
    metrics: dict[str, float]
    online: OnlineFact | None = None
    """Of an actor that was trained online."""


class Headline(Fact):
    """The result of a run: `sweet.scoring.results.run_result` says which it is."""

    scores: str
    rate: Rate
    of: str = ""
    """Whose dialogues on which tasks: `actor-1 on test tasks`."""
    before: str | None = None
    """The scores of the first agent on the same tasks."""


class Report(Fact):
    """The whole report of a run."""

    run: str
    task: str
    created: datetime
    ended: datetime | None
    """When the last attempt ended."""
    versions: list[str]
    """The versions of the program that the attempts recorded."""
    method: str
    headline: Headline | None
    rounds: dict[str, JsonValue] = Field(default_factory=dict)
    """What `sweet train` has recorded, with its rounds; empty where the stages were called one by one."""
    artifacts: list[ArtifactStatus]
    attempts: list[AttemptFact]
    results: list[ScoresFact]
    comparisons: list[ComparisonFact]
    training: list[TrainingFact]
    dialogues: list[DialoguesFact]
    spent: Spending | None = None
    """The tokens of all attempts, and their cost; None where they cannot be read."""
    citation: str = ""
    """One paragraph to cite the run."""
    problems: list[str] = Field(default_factory=list)
    """Descriptions of what is damaged, missing or omitted."""

    @property
    def day(self) -> date:
        """The day on which the last attempt ended."""
        return (self.ended or self.created).date()

    def result(self, id: str) -> ScoresFact | None:
        return next((result for result in self.results if result.id == id), None)

    @property
    def change(self) -> ComparisonFact | None:
        """The result against the first agent; None where that has no scores on the same tasks."""
        wanted = None if self.headline is None else (self.headline.before, self.headline.scores)
        return next((one for one in self.comparisons if (one.before, one.after) == wanted), None)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        metrics = ReportMetrics()
        if self.headline is not None and (result := self.result(self.headline.scores)) is not None:
            rate = self.headline.rate
            found = {rate.name: rate.mean, f"{rate.name}_ci_low": rate.low, f"{rate.name}_ci_high": rate.high}
            metrics = ReportMetrics(headline=found, trained_on_tasks=result.trained_on_tasks)
        return {"stage": "report", "metrics": metrics.as_json(), **self.model_dump(mode="json")}


class ReportMetrics(Record):
    headline: Annotated[
        dict[str, float | None],
        Flat(
            {
                "success_rate": "success rate of the result, with interval (code)",
                "cosine": "mean similarity of the result, with interval (html)",
            }
        ),
    ] = Field(default_factory=dict)
    """The rate that the page begins with."""
    trained_on_tasks: int | None = None
    """tasks of these scores that their agent was trained on; null where this is not known"""
