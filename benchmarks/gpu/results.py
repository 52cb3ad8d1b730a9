"""Settings, parts, and the results of stages: one JSON file for each stage, from one line for each finished part.

A part that lacks a library is a row with the status `skipped`, one that raised an error or ended its process is
`failed`; both have a reason. A lack of GPU memory is a result and no failure. A row whose figures have `against`, the
name of another part of the stage, is compared with that one: `speedup` is the ratio of the seconds, `peak_ratio` that
of the memory, and `difference` the greatest difference of the `values` of both, which are then left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from sweet.errors import InputError

Figures = dict[str, Any]
"""JSON values by name."""
Status = Literal["done", "skipped", "failed", "out of memory"]
StageStatus = Literal["done", "partial", "skipped", "failed"]
VALUES, AGAINST = "values", "against"


class Skipped(Exception):
    """A part cannot be measured here; the text says what is missing."""


@dataclass(frozen=True)
class Part:
    """One measurement.

    Attributes:
        measure: returns the figures.
        resumes: its work goes on where an earlier process was ended, so that it may take longer than a stage's limit.
    """

    name: str
    measure: Callable[[], Figures]
    resumes: bool = False


class Settings(BaseModel):
    """What the stages are measured with.

    Attributes:
        out: folder of the results and of the runs that the stages make.
        tiny: models of a few thousand weights, one or two steps, on any device.
        model: folder of SmolLM2-135M-Instruct in Hugging Face layout.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path
    tiny: bool = False
    model: Path | None = None

    @property
    def work(self) -> Path:
        """The folder of the runs, models and logs that stages make."""
        return self.out / "work"

    def result_file(self, stage: str) -> Path:
        return self.out / f"{stage}.json"

    def rows_file(self, stage: str) -> Path:
        """The file with one line for each part that has begun or ended."""
        return self.work / f"{stage}.jsonl"

    def log_file(self, stage: str) -> Path:
        return self.work / f"{stage}.log"


class Row(BaseModel):
    """The result of one part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: str
    status: Status
    reason: str | None = None
    """Why it was skipped or failed."""
    seconds: float = 0.0
    """Of the whole part, preparation included."""
    figures: dict[str, JsonValue] = {}


class Result(BaseModel):
    """The result of one stage, as in its file and as printed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    stage: str
    status: StageStatus
    """`done`: every part is done or skipped; `partial`: some were not reached; `failed`: at least one failed."""
    reason: str | None = None
    tiny: bool = False
    machine: dict[str, JsonValue] = {}
    """Device, versions and libraries."""
    rows: list[Row] = []


class Progress(BaseModel):
    """What a stage's file of lines says: what is finished, and the part that has begun and not ended."""

    machine: dict[str, JsonValue] = {}
    rows: list[Row] = []
    names: list[str] | None = None
    """All parts; None before the stage has listed them."""
    begun: str | None = None
    resumes: bool = False
    """Whether that part goes on where it was ended."""

    @property
    def missing(self) -> list[str]:
        """The parts that have no row."""
        known = {row.part for row in self.rows}
        return [name for name in self.names or () if name not in known]


def write_line(path: Path, **fields: Any) -> None:
    """Append a line to a stage's file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(fields) + "\n")


def read_progress(path: Path) -> Progress:
    """Read a stage's file of lines; a last line that a killed process did not finish is ignored."""
    found = Progress()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if not line.endswith("\n"):
            continue
        fields = json.loads(line)
        if "machine" in fields:
            found.machine, found.names = fields["machine"], fields["names"]
        elif "begun" in fields:
            found.begun, found.resumes = fields["begun"], fields["resumes"]
        else:
            found.rows.append(Row.model_validate(fields["row"]))
            found.begun = None
    return found


def result_of(stage: str, found: Progress, *, tiny: bool, reason: str | None = None) -> Result:
    """Return the result of a stage from what is finished.

    Args:
        reason: why not all parts were reached, or why none could be.
    """
    statuses = {row.status for row in found.rows}
    status: StageStatus = "done"
    if "failed" in statuses or found.names is None:
        status = "failed"
    elif found.missing:
        status = "partial"
    elif statuses == {"skipped"}:
        status = "skipped"
    if found.missing:
        reason = f"{reason or 'interrupted'}; not reached: {', '.join(found.missing)}"
    return Result(
        stage=stage, status=status, reason=reason, tiny=tiny, machine=found.machine, rows=compared(found.rows)
    )


def compared(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the ratios and differences to the rows that they name, and without their values."""
    done = {row.part: row.figures for row in rows if row.status == "done"}
    return [row.model_copy(update={"figures": _compared(row.figures, done)}) for row in rows]


def _compared(figures: dict[str, JsonValue], done: dict[str, dict[str, JsonValue]]) -> dict[str, JsonValue]:
    found: Figures = {name: value for name, value in figures.items() if name != VALUES}
    own: Figures = figures
    other: Figures = done.get(str(figures.get(AGAINST)), {})
    if other:
        if "seconds" in own and "seconds" in other:
            found["speedup"] = other["seconds"] / own["seconds"]
        if "peak_mib" in own and "peak_mib" in other:
            found["peak_ratio"] = own["peak_mib"] / other["peak_mib"]
        if VALUES in own and VALUES in other:
            found["difference"] = max(abs(a - b) for a, b in zip(own[VALUES], other[VALUES], strict=True))
    return found


def parse_result(text: str, path: Path) -> Result:
    """Return the result of a stage from its JSON.

    Args:
        path: where it is, for errors.

    Raises:
        InputError: it is not one.
    """
    try:
        return Result.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the text"
        raise InputError(
            f"This is not the result of a stage: {place}: {first['msg']}.",
            path=path,
            fix="remove it, and measure the stage again",
        ) from error


def read_result(path: Path) -> Result:
    """Read the result of a stage. Raises the errors of `parse_result`."""
    return parse_result(path.read_text(encoding="utf-8", errors="replace"), path)
