"""The results of a study, as in its `study.json`. Shares are from 0 to 1; means and intervals are over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sweet.errors import InputError
from sweet.json_value import JsonValue

Bounds = tuple[float, float]
"""The bounds of a 95% interval."""
Columns = dict[str, list[float | Bounds | None]]
"""A plot over numbers: a column of these numbers, and for each curve its means and, as `NAME_ci`, its intervals."""

INTERVALS = "_ci"


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Against(_Result):
    """`sweet` minus another method on the same tasks."""

    difference: float
    ci: Bounds | None
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
    success: float
    """On validation tasks, at temperature 1."""
    success_ci: Bounds | None = None


class AtEqualSeconds(_Result):
    """A learning curve, read on each seed at the seconds that `sweet` needs there."""

    seconds: float
    tokens: float | None
    success: float
    success_ci: Bounds | None = None
    sweet_minus: float
    """The success of `sweet` on validation tasks minus this one."""
    sweet_minus_ci: Bounds | None = None
    """t over the seeds' differences."""


class MethodResult(_Result):
    method: str
    success: float
    success_ci: Bounds | None = None
    success_by_seed: list[float] = Field(default_factory=list)
    tests_passed: float
    tests_passed_ci: Bounds | None = None
    greedy_success: float
    greedy_success_ci: Bounds | None = None
    generated_tokens: float | None = None
    """That the agent wrote for the method to learn from, in one seed; None where a server does not report them."""
    generated_tokens_by_seed: list[int | None] = Field(default_factory=list)
    seconds: float
    """Of all steps that the method needs when it runs alone, from its dialogues to the actor, in one seed."""
    seconds_by_seed: list[float] = Field(default_factory=list)
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    against_sweet: Against | None = None
    """`sweet` minus this method."""
    against_plus: Against | None = None
    """`sweet-plus` minus this method."""
    curve: list[CurvePoint] = Field(default_factory=list)
    """The learning curve on validation tasks, from the start of all methods; empty where none was measured."""
    at_equal_seconds: AtEqualSeconds | None = None


class Advantage(_Result):
    """The mean advantage of the turns of one kind, in nats per token."""

    mean: float
    ci: Bounds | None = None


class Agreement(_Result):
    """How often a critic orders two replies of one turn as their credit does."""

    share: float
    ci: Bounds | None = None


class Credit(_Result):
    """The critics' advantages by kind of turn, and their agreement over all couples of replies and by the kinds of a
    couple (`useful>useless`)."""

    critic: dict[str, Advantage] = Field(default_factory=dict)
    no_info: dict[str, Advantage] = Field(default_factory=dict)
    agreement: dict[str, Agreement] = Field(default_factory=dict)
    agreement_by_kind: dict[str, dict[str, Agreement]] = Field(default_factory=dict)


class StudyResults(_Result):
    schema_version: Literal[1]
    family: str
    """The family of tasks."""
    model: str | None = None
    """The model that everything starts from, where it is not the packaged agent."""
    seeds: list[int] = Field(min_length=1)
    test_tasks: int = Field(ge=1)
    methods: list[MethodResult]
    best_of: Columns | None = None
    """Success over `n`, where one of n finished dialogues is chosen."""
    best_of_turns: Columns | None = None
    """Success over `n`, where one of n replies is chosen at each turn."""
    credit: Credit | None = None
    note: str | None = None
    """What readers must know about how the study was run."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    versions: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("best_of", "best_of_turns")
    @classmethod
    def _over_n(cls, columns: Columns | None) -> Columns | None:
        _check_columns(columns or {})
        return columns


def _check_columns(columns: Mapping[str, Sequence[float | Bounds | None]]) -> None:
    """Raise ValueError where columns do not fit each other."""
    if columns and not all(isinstance(value, float) and value > 0 for value in columns.get("n", [None])):
        raise ValueError("n must be numbers above 0")
    for name, column in columns.items():
        if len(column) != len(columns["n"]):
            raise ValueError(f"{name} is not as long as n")
        if not all((value is None or isinstance(value, tuple)) == name.endswith(INTERVALS) for value in column):
            raise ValueError(f"{name} must be {'intervals' if name.endswith(INTERVALS) else 'numbers'}")


def read_results(path: Path) -> StudyResults:
    """Read the results of a study.

    Raises:
        InputError: the file cannot be read, or is not the results of a study.
    """
    try:
        return StudyResults.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"The results cannot be read: {error.strerror}.", path=path, fix="run a study first"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"The file is not the results of a study: {location}: {first['msg']}.", path=path, fix="run a study first"
        ) from error
