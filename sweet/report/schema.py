"""What a report tells, as types. `sweet report --json` prints them; `sweet.view.report` draws them."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sweet.inspection.status import ArtifactStatus

LARGEST = 1e15
"""No figure of a run is larger; what is, was written by somebody else's hand and would break every scale."""


def number(value: object) -> float | None:
    """A value of a manifest or a file as a number that can be drawn; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return None
    return float(value) if math.isfinite(value) else None


def words(value: object) -> str:
    """A value of a manifest as text; empty where there is none."""
    return "" if value is None else str(value)


def bounds_in_words(low: float | None, high: float | None, form: str = ".3f") -> str:
    """`[0.297, 0.531]`; empty where there are none."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Rate(_Fact):
    """A mean with the bounds of its 95% interval, where it has one."""

    name: str
    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> str:
        return bounds_in_words(self.low, self.high)


class ArtifactFact(ArtifactStatus):
    """One artifact: what `sweet status` tells of it, and its sum."""

    sha256: str | None


class Link(_Fact):
    """That one artifact was made from another, or, where it `played`, that the other's model spoke in it."""

    source: str
    target: str
    played: bool = False


class AttemptFact(_Fact):
    """One call of a stage."""

    id: str
    stage: str
    status: str
    started: datetime
    seconds: float | None
    outputs: list[str]
    changed: dict[str, JsonValue]
    """The settings that differ from the defaults."""
    defaults: dict[str, JsonValue]
    """The other settings. All settings of a stage that is not known here are among `changed`."""
    environment: dict[str, str]
    command: str | None
    """The command line that does it again; None where the stage is not known here."""
    error: str | None


class Point(_Fact):
    x: float
    y: float
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> str:
        return bounds_in_words(self.low, self.high)


class Series(_Fact):
    name: str
    points: list[Point]


class CurveFact(_Fact):
    """Figures by a number: pass@k, best of k, the best of N by the critic."""

    name: str
    series: list[Series]


class ScoresFact(_Fact):
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
    rates: list[Rate]
    """The most telling first."""
    outcomes: dict[str, int]
    faults: int | None
    invalid_tasks: int | None
    curves: list[CurveFact]
    against: str
    """The scores that they were compared with, RUN:scores-2; empty where they were not."""
    win_rate: Rate | None
    """Share of the tasks on which this run's reward is higher than that one's."""


class Measure(_Fact):
    """The paired difference of a figure by task, after minus before, as `sweet compare` tells it."""

    name: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    p_value: float
    test: str
    """Of the p-value: mcnemar or permutation."""
    wins: int
    losses: int
    ties: int

    @property
    def bounds(self) -> str:
        """Of the difference."""
        return bounds_in_words(self.low, self.high, "+.3f")


class ComparisonFact(_Fact):
    """The trained actor and the agent it came from, on the tasks that both played."""

    before: str
    after: str
    tasks: int
    measures: list[Measure]
    warnings: list[str]
    """What makes the comparison unfair, in sentences."""


class Bin(_Fact):
    """The dialogues whose figure lies between `low` and `high`, both included, and how many of them succeed."""

    low: float
    high: float
    n: int
    rate: Rate


class Binned(_Fact):
    by: str
    """turns, tokens or seconds."""
    bins: list[Bin]


class Sample(_Fact):
    """A dialogue to show."""

    rollouts: str
    id: str
    why: list[str]


class DialoguesFact(_Fact):
    """The dialogues of one rollouts artifact."""

    rollouts: str
    scores: str | None
    """Whose rewards these are."""
    agent: str
    dataset: str
    count: int
    measure: str
    """What the rates by turns, tokens and seconds are of: success, or reward where no task is ever solved."""
    ends: dict[str, int]
    human_faults: dict[str, int]
    outcomes: dict[str, int]
    by: list[Binned]


class TurnAdvantage(_Fact):
    """The candidates at one turn of the dialogue, of all the dialogues that were ranked there."""

    turn: int
    ranked: int
    candidates: int
    mean: float
    lower: float
    """The first quartile."""
    median: float
    upper: float
    """The third quartile."""
    spread: float
    """Mean over dialogues of the best candidate's advantage less the worst's."""
    taken: float | None
    """Mean advantage of the replies that were really given."""


class AdvantagesFact(_Fact):
    candidates: str
    rollouts: str | None
    unit: str
    turns: list[TurnAdvantage]


class TrainingFact(_Fact):
    """How one model was trained."""

    artifact: str
    attempts: list[str]
    steps: int
    together: int
    """Steps of which a point of a curve is the mean."""
    series: dict[str, list[Point]]
    metrics: dict[str, float]


class Headline(_Fact):
    scores: str
    rate: Rate


class Report(_Fact):
    """Everything that `sweet report` tells of a run."""

    run: str
    task: str
    created: datetime
    ended: datetime | None
    """When the last attempt ended."""
    versions: list[str]
    """Of the program, as the attempts tell them."""
    method: str
    headline: Headline | None
    artifacts: list[ArtifactFact]
    links: list[Link]
    attempts: list[AttemptFact]
    results: list[ScoresFact]
    comparisons: list[ComparisonFact]
    training: list[TrainingFact]
    dialogues: list[DialoguesFact]
    advantages: list[AdvantagesFact]
    samples: list[Sample]
    citation: str = ""
    """One paragraph that quotes the run."""
    bibtex: str = ""
    problems: list[str] = Field(default_factory=list)
    """What is broken, missing or left out, in words."""

    def result(self, id: str) -> ScoresFact | None:
        return next((result for result in self.results if result.id == id), None)

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        head = {} if self.headline is None else self._head(self.headline)
        return {"stage": "report", "metrics": head, **self.model_dump(mode="json")}

    def _head(self, headline: Headline) -> dict[str, Any]:
        rate = headline.rate
        return {rate.name: rate.mean, f"{rate.name}_ci_low": rate.low, f"{rate.name}_ci_high": rate.high}
