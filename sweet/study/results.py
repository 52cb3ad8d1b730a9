"""The results of a study, as in its `study.json`. Shares are from 0 to 1; means and intervals are over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import InputError, place_and_problem
from sweet.json_value import JsonValue
from sweet.stages.base import Seed
from sweet.stages.record import Flat, Record

Bounds = tuple[float, float]
"""The bounds of a 95% interval."""
Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=0, le=1 << 53)]
Seconds = Annotated[float, Field(ge=0, le=1 << 53)]
"""Of one seed; means of numbers without a limit would be none."""


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Estimate(_Result):
    """A mean with its interval; without one where a single seed has finished."""

    mean: float
    ci: Bounds | None = None

    @property
    def alone(self) -> Estimate:
        """The mean without its interval."""
        return Estimate(mean=self.mean)


class Against(_Result):
    """`sweet` minus another method on the same tasks."""

    difference: Estimate
    """Bootstrap over tasks, of the means over seeds."""
    p_value: float
    seeds_ci: Bounds | None
    """t over the seeds' differences."""


class CurvePoint(_Result):
    """A point of a learning curve: means over seeds."""

    tokens: float | None
    """That the agent had generated for the method."""
    seconds: float
    """Of the steps until then."""
    success: Estimate
    """On validation tasks, at temperature 1."""


class AtEqualSeconds(_Result):
    """A learning curve, read on each seed at the seconds that `sweet` needs there."""

    seconds: float
    tokens: float | None
    success: Estimate
    sweet_minus: Estimate
    """The success of `sweet` on validation tasks minus this one; t over the seeds' differences."""


class Reached(NamedTuple):
    """A point of one seed's curve."""

    tokens: Tokens | None
    """That the agent had generated; None where not known."""
    seconds: Seconds
    """Of all steps until then."""
    success: float
    """On validation tasks, at temperature 1."""


class SeedOutcome(_Result):
    """What a method reached on one seed."""

    success: str
    """Of its dialogue on each test task, in the order of their ids: 1, or 0."""
    tests_passed: Share
    greedy_success: Share
    generated_tokens: Tokens | None
    """That the agent wrote for the method; None where not known."""
    seconds: Seconds
    """Of all steps that the method needs, from its dialogues to the actor."""
    agreement: Share | None = None
    """How often its credit orders two replies to one turn, or two turns of a task's dialogues, as the task does; None
    where it assigns none, or the task does not know."""
    curve: list[Reached] | None = None
    """The learning curve; None where it was not measured."""

    @property
    def by_task(self) -> list[float]:
        """The success on each test task."""
        return [float(digit) for digit in self.success]


class MethodResult(_Result):
    method: str
    success: Estimate
    success_by_seed: list[float] = Field(default_factory=list)
    tests_passed: Estimate
    greedy_success: Estimate
    generated_tokens: float | None = None
    """That the agent wrote for the method to learn from, in one seed; None where a server does not report them."""
    generated_tokens_by_seed: list[int | None] = Field(default_factory=list)
    seconds: float
    """Of all steps that the method needs when it runs alone, from its dialogues to the actor, in one seed."""
    seconds_by_seed: list[float] = Field(default_factory=list)
    agreement: Estimate | None = None
    """Of `SeedOutcome.agreement`."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    against_sweet: Against | None = None
    """`sweet` minus this method."""
    against_plus: Against | None = None
    """`sweet-plus` minus this method."""
    curve: list[CurvePoint] = Field(default_factory=list)
    """The learning curve on validation tasks, from the start of all methods; empty where none was measured."""
    at_equal_seconds: AtEqualSeconds | None = None
    outcomes: dict[int, SeedOutcome] = Field(default_factory=dict)
    """By seed."""


class Try(_Result):
    """Settings that were tried for a method."""

    settings: dict[str, JsonValue]
    success: float
    """On validation tasks, at temperature 1."""


class BestOf(_Result):
    """The success where the best of n is chosen."""

    n: int = Field(ge=1)
    success: Estimate


class Credit(_Result):
    """The critics' mean advantages by kind of turn, in nats per token, and how often they order two replies of one turn
    as their credit does: over all couples of replies and by the kinds of a couple (`useful>useless`)."""

    critic: dict[str, Estimate] = Field(default_factory=dict)
    no_info: dict[str, Estimate] = Field(default_factory=dict)
    agreement: dict[str, Estimate] = Field(default_factory=dict)
    agreement_by_kind: dict[str, dict[str, Estimate]] = Field(default_factory=dict)


class StudyResults(_Result):
    schema_version: Literal[1]
    family: str
    """The family of tasks."""
    model: str | None = None
    """The model that everything starts from, where it is not the packaged agent."""
    seeds: list[Seed] = Field(min_length=1)
    test_tasks: int = Field(ge=1)
    methods: list[MethodResult]
    best_of: dict[str, list[BestOf]] | None = None
    """By judge: where it chooses one of n finished dialogues."""
    best_of_turns: dict[str, list[BestOf]] | None = None
    """By judge: where it chooses one of n replies at each turn."""
    credit: Credit | None = None
    note: str | None = None
    """What readers must know about how the study was run."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    tries: dict[str, list[Try]] | None = None
    """By method, where its settings were searched."""
    digests: dict[str, JsonValue] = Field(default_factory=dict)
    """Of the start agent's weights and of the tasks."""
    versions: dict[str, JsonValue] = Field(default_factory=dict)


class StudyMetrics(Record):
    """The metrics of `sweet bench`."""

    study: Annotated[
        StudyResults,
        Flat(
            {
                "seeds": "the seeds; the metrics below are means over them with a t-interval",
                "test_tasks": "unseen tasks of each evaluation",
                "methods": "success, tests_passed and greedy_success of each method, the tokens that "
                "the agent generated for it, the seconds of its steps, its settings, and the difference of sweet and "
                "the method: paired by task, and over seeds; its learning curve on validation tasks, also read at the "
                "seconds that sweet needs",
                "best_of": "success of the best of n finished dialogues, by critic, no_info, random and oracle",
                "best_of_turns": "success with the best of n replies at each turn, by critic, no_info, "
                "random, oracle and untrained",
                "credit": "mean advantage by kind of turn, and how often replies are ordered correctly",
                "settings": "the sizes of the study",
                "tries": "with --tries: the settings tried for each method, and their success on validation tasks",
                "digests": "of the start agent's weights and of the tasks",
                "versions": "versions of the software",
            }
        ),
    ]
    """The results of the study."""
    results: str
    """the file with all these metrics"""
    failed: list[str]
    """parts that failed, with the reason"""
    seconds: float
    """total time"""


def read_results(path: Path) -> StudyResults:
    """Read the results of a study.

    Raises:
        InputError: the file cannot be read, or is not the results of a study.
    """
    try:
        return StudyResults.model_validate_json(path.read_bytes())
    except OSError as error:
        what = f"The results cannot be read: {error.strerror}."
        raise InputError(what, path=path, fix="run a study first") from error
    except ValidationError as error:
        what = f"The file is not the results of a study: {place_and_problem(error, 'the file')}."
        raise InputError(what, path=path, fix="run a study first") from error
