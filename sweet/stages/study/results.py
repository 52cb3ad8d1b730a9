"""What a study found, as it stands in its `study.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from sweet.errors import InputError, first_line

Name = str
"""Of a method, a judge or a kind of turn."""
Bounds = tuple[float, float]
"""Of a 95% interval."""


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
    method: Name
    success: float
    success_ci: Bounds | None = None
    success_by_seed: list[float] = Field(default_factory=list)
    tests_passed: float
    tests_passed_ci: Bounds | None = None
    greedy_success: float
    greedy_success_ci: Bounds | None = None
    seconds: float
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    against_sweet: Against | None = None


class StudyResults(_Found):
    schema_version: Literal[1]
    family: str
    seeds: list[int] = Field(min_length=1)
    test_tasks: int = Field(ge=1)
    methods: list[MethodResult]
    best_of: dict[str, list[float | Bounds | None]] | None = None
    offline: dict[str, list[float | Bounds | None]] | None = None
    credit: dict[str, dict[str, JsonValue]] | None = None
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    versions: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _alike_long(self) -> Self:
        for name, columns in (("best_of", self.best_of), ("offline", self.offline)):
            if columns and len({len(column) for column in columns.values()}) > 1:
                raise ValueError(f"the lists of {name} are not equally long")
        return self


def read_results(path: Path) -> StudyResults:
    """Raise InputError where the file is no study's results."""
    try:
        return StudyResults.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            f"These are no results of a study: {first_line(error)}", path=path, fix="sweet demo --study"
        ) from error
