"""What a study found, as it stands in its `study.json`. Shares are from 0 to 1; means and their intervals are over
seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from sweet.errors import InputError

Bounds = tuple[float, float]
"""Of a 95% interval."""
Columns = dict[str, list[float | Bounds | None]]
"""A figure that is drawn over numbers: a column of these, and of each curve its means and, as `NAME_ci`, its
intervals."""

INTERVALS = "_ci"


class _Found(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class Against(_Found):
    """`sweet` less another method on the same tasks."""

    difference: float
    ci: Bounds | None
    """Bootstrap over tasks, of the means over seeds."""
    p_value: float
    seeds_ci: Bounds | None
    """t over the seeds' differences."""


class MethodResult(_Found):
    method: str
    success: float
    success_ci: Bounds | None = None
    success_by_seed: list[float] = Field(default_factory=list)
    tests_passed: float
    tests_passed_ci: Bounds | None = None
    greedy_success: float
    greedy_success_ci: Bounds | None = None
    seconds: float
    """Of all that made the actor from the offline dialogues, in one seed."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    against_sweet: Against | None = None


class Advantage(_Found):
    """Of the turns of one kind, in nats a token."""

    mean: float
    ci: Bounds | None = None


class Agreement(_Found):
    """How often a critic orders two replies of one turn as their true values do."""

    share: float
    ci: Bounds | None = None


class Credit(_Found):
    """What the critics make of turns: by kind of turn; of two replies; and of two by their kinds (`useful>useless`)."""

    critic: dict[str, Advantage] = Field(default_factory=dict)
    no_info: dict[str, Advantage] = Field(default_factory=dict)
    agreement: dict[str, Agreement] = Field(default_factory=dict)
    agreement_by_kind: dict[str, dict[str, Agreement]] = Field(default_factory=dict)


class StudyResults(_Found):
    schema_version: Literal[1]
    family: str
    """Of tasks."""
    model: str | None = None
    """That everything starts from, where it is not the packaged agent."""
    seeds: list[int] = Field(min_length=1)
    test_tasks: int = Field(ge=1)
    methods: list[MethodResult]
    best_of: Columns | None = None
    """Over `n`."""
    offline: Columns | None = None
    """Over `trajectories`."""
    credit: Credit | None = None
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    versions: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("best_of")
    @classmethod
    def _over_n(cls, columns: Columns | None) -> Columns | None:
        _check_columns(columns or {}, "n")
        return columns

    @field_validator("offline")
    @classmethod
    def _over_trajectories(cls, columns: Columns | None) -> Columns | None:
        _check_columns(columns or {}, "trajectories")
        return columns


def _check_columns(columns: Mapping[str, Sequence[float | Bounds | None]], over: str) -> None:
    """Raise ValueError where they are none."""
    if columns and not all(isinstance(value, float) and value > 0 for value in columns.get(over, [None])):
        raise ValueError(f"{over} must be numbers above 0")
    for name, column in columns.items():
        if len(column) != len(columns[over]):
            raise ValueError(f"{name} is not as long as {over}")
        if not all((value is None or isinstance(value, tuple)) == name.endswith(INTERVALS) for value in column):
            raise ValueError(f"{name} must be {'intervals' if name.endswith(INTERVALS) else 'numbers'}")


def read_results(path: Path) -> StudyResults:
    """Raise InputError where the file is no study's results."""
    try:
        return StudyResults.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"The results cannot be read: {error.strerror}.", path=path, fix="make a study first"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(
            f"These are no results of a study: {place}: {first['msg']}.", path=path, fix="make a study first"
        ) from error
