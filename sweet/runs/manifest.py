"""The manifest: the contents of a run, as types.

`run/manifest.json` is the one record of which artifacts exist, which attempts made them and from what. A user may edit
it, and another version of the program may have written it, so it is validated as input from outside: `parse` checks the
schema version first, then every id, path and reference, and reports where something is wrong.

A stage makes artifacts, `<kind>-<n>`, in attempts, `<stage>-<n>`. An artifact is registered as partial before its first
byte is written, so a run contains nothing that is not in the manifest.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_json

from sweet.errors import InputError, UsageError, place_and_problem
from sweet.json_value import JsonValue

SCHEMA_VERSION = 1
"""Incremented when a manifest is written in another form; only this one is read."""

LOGS = "logs"
"""The folder of what attempts write about themselves, below the root of a run."""

Kind = Literal["rollouts", "scores", "preferences", "critic", "candidates", "pairs", "actor"]

_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z][a-z0-9]*)*-[1-9][0-9]{0,8}")
_LARGEST_NUMBER = 10**9 - 1


def _check_id(value: str) -> str:
    if not _ID.fullmatch(value):
        raise ValueError("an id is a name in lower case, a hyphen and a number, such as rollouts-1")
    return value


@functools.lru_cache(4096)  # all are checked again whenever the manifest is read or written
def _check_path(value: str) -> str:
    path = PurePosixPath(value)
    plain = value.isprintable() and "\\" not in value and not re.match("[A-Za-z]:", value)
    if not plain or path.is_absolute() or ".." in path.parts or not path.parts or str(path) != value:
        raise ValueError("a path is relative to the run, inside it, and in its simplest form, such as rollouts/x.jsonl")
    return value


Id = Annotated[str, AfterValidator(_check_id)]
RunPath = Annotated[str, AfterValidator(_check_path)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ArtifactRef(_Record):
    """An input, with its content when it was used."""

    model_config = ConfigDict(frozen=True)

    id: Id
    sha256: Sha256 | None = None


class Artifact(_Record):
    """A file or folder that a stage made."""

    id: Id
    kind: Kind
    path: RunPath
    """Path relative to the run, with slashes."""
    rows: int | None = Field(default=None, ge=0)
    """Number of rows of a JSONL file; None for a folder."""
    sha256: Sha256 | None = None
    """Of the content when the artifact was last finished. A partial artifact has one if it was reopened."""
    bytes: int = Field(default=0, ge=0)
    """Size in bytes when it was last finished."""
    status: Literal["partial", "done"] = "partial"
    attempt: Id
    """The attempt that wrote it last."""
    inputs: list[ArtifactRef] = Field(default_factory=list)
    created: AwareDatetime
    finished: AwareDatetime | None = None
    meta: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Artifact:
        if self.id.rpartition("-")[0] != self.kind:
            raise ValueError(f"the id {self.id} is not one of the kind {self.kind}")
        if self.status == "done" and (self.sha256 is None or self.finished is None):
            raise ValueError("an artifact that is done has a sha256 and a time when it was finished")
        if any(ref.id == self.id for ref in self.inputs):
            raise ValueError(f"{self.id} cannot be its own input")
        return self

    @property
    def number(self) -> int:
        return int(self.id.rpartition("-")[2])

    def ref(self) -> ArtifactRef:
        """Return this artifact as an input, with its current content."""
        return ArtifactRef(id=self.id, sha256=self.sha256)


class Attempt(_Record):
    """One call of a stage."""

    id: Id
    stage: str = Field(pattern=r"^[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*$")
    status: Literal["running", "done", "failed", "interrupted"] = "running"
    started: AwareDatetime
    finished: AwareDatetime | None = None
    pid: int = Field(gt=0, lt=1 << 31)
    host: str
    process: str = ""
    """Distinguishes the process from a later one with the same pid: boot, pid namespace and start time."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    digest: str
    """Of the settings that decide the result: attempts of a stage with the same digest and inputs do the same."""
    inputs: list[ArtifactRef] = Field(default_factory=list)
    outputs: list[Id] = Field(default_factory=list)
    metrics: dict[str, JsonValue] = Field(default_factory=dict)
    environment: dict[str, JsonValue] = Field(default_factory=dict)
    error: str | None = None
    exit_code: int | None = Field(default=None, ge=0, le=255)
    """Of its command, once it has ended; None if that is unknown."""
    log: RunPath

    @model_validator(mode="after")
    def _agree(self) -> Attempt:
        if self.id.rpartition("-")[0] != self.stage:
            raise ValueError(f"the id {self.id} is not one of the stage {self.stage}")
        return self


class Manifest(_Record):
    """The contents of a run.

    Attempts are in the order in which they were started. Artifacts are too, but one that is finished becomes the last:
    which is newer is said by their order alone, because the clock of a machine may be set back.
    """

    schema_version: Literal[1] = 1
    sweet_version: str
    """The version of the program that wrote it last."""
    task: str = Field(min_length=1)
    """Kind of task: code, desk, html, orders, tau2:DOMAIN, or one of a plug-in."""
    created: AwareDatetime
    attempts: list[Attempt] = Field(default_factory=list)
    artifacts: list[Artifact] = Field(default_factory=list)

    @model_validator(mode="after")
    def _agree(self) -> Manifest:
        for what, values in (
            ("id", [attempt.id for attempt in self.attempts]),
            ("id", [artifact.id for artifact in self.artifacts]),
            ("path", [artifact.path for artifact in self.artifacts]),
        ):
            twice, times = next(iter(Counter(values).most_common(1)), ("", 0))
            if times > 1:
                raise ValueError(f"the {what} {twice} occurs twice")
        attempt_ids = {attempt.id for attempt in self.attempts}
        for artifact in self.artifacts:
            if artifact.attempt not in attempt_ids:
                raise ValueError(f"{artifact.id} was made by {artifact.attempt}, which is not among the attempts")
        return self

    def artifact(self, id: str) -> Artifact | None:
        return next((artifact for artifact in self.artifacts if artifact.id == id), None)

    def attempt(self, id: str) -> Attempt | None:
        return next((attempt for attempt in self.attempts if attempt.id == id), None)

    def begun_by(self, pid: int, host: str, process: str) -> list[Attempt]:
        """Return the attempts that a process has begun, in their order; see `Attempt.process`."""
        marks = pid, host, process
        return [attempt for attempt in self.attempts if (attempt.pid, attempt.host, attempt.process) == marks]

    def of_kind(self, kind: str, status: str | None = None) -> list[Artifact]:
        """Return the artifacts of a kind, the newest at the end."""
        return [a for a in self.artifacts if a.kind == kind and (status is None or a.status == status)]

    def position(self, record: Artifact | Attempt) -> int:
        """Return the position of an attempt among the attempts, of an artifact that of the attempt that began it; what
        is newer than this manifest comes after all."""
        ids = {record.id, record.attempt if isinstance(record, Artifact) else record.id}
        began = (index for index, attempt in enumerate(self.attempts) if ids & {attempt.id, *attempt.outputs})
        return next(began, len(self.attempts))


def now() -> datetime:
    return datetime.now(UTC)


def next_id(name: str, used_ids: Iterable[str]) -> str:
    """Return `<name>-<n>`, with n larger than in all of `used_ids` with the same name; where one has the largest
    number that there is, the first that is free."""
    numbers = {0}
    for id in used_ids:
        stem, _, number = id.rpartition("-")
        if stem == name and _ID.fullmatch(id):
            numbers.add(int(number))
    largest = max(numbers)
    free = largest + 1 if largest < _LARGEST_NUMBER else next(n for n in count(1) if n not in numbers)
    return f"{name}-{free}"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `manifest.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Manifest.model_json_schema()


def parse(data: bytes, path: Path, fix: str) -> Manifest:
    """Parse the content of a manifest file.

    Args:
        fix: how a damaged file is repaired, for errors.

    Raises:
        UsageError: it has another schema.
        InputError: it is damaged; the message says where.
    """
    with suppress(ValidationError):
        return Manifest.model_validate_json(data)
    # Something is wrong with it: what that is.
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError("The manifest is not UTF-8 text.", path=path, fix=fix) from error
    except json.JSONDecodeError as error:
        what = f"The manifest is damaged: {error.msg} (column {error.colno})."
        raise InputError(what, path=path, line=error.lineno, fix=fix) from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"The manifest is damaged: {error}.", path=path, fix=fix) from error
    version = value.get("schema_version") if isinstance(value, Mapping) else None
    if isinstance(version, int) and version != SCHEMA_VERSION:
        what = f"The manifest has the schema {version}, and this version of sweet reads {SCHEMA_VERSION}."
        raise UsageError(what, where=path, fix="open it with the version that wrote it")
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        more = error.error_count() - 1
        suffix = f" ({more} more like it)" if more else ""
        what = f"The manifest is damaged: {place_and_problem(error, 'the whole')}{suffix}."
        raise InputError(what, path=path, fix=fix) from error


def render(manifest: Manifest) -> bytes:
    """Return the content of the file, which `parse` reads as an equal manifest."""
    return to_json(manifest.model_dump(mode="json"), indent=1, inf_nan_mode="constants") + b"\n"
