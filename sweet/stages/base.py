"""The interface of stages: a frozen configuration, a reporter, and a result.

A stage is a function `(run, config, reporter) -> StageResult`. It reads artifacts of the run, does its work inside one
`run.attempt(...)`, and writes artifacts. It never prints: it calls the reporter, which the command line implements.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from typing_extensions import TypeVar

from sweet.errors import UsageError
from sweet.hints import words_of_option
from sweet.runs.manifest import Artifact
from sweet.stages.record import Record
from sweet.suggestions import did_you_mean
from sweet.topics import Topic

OPERATIONAL: JsonDict = {"operational": True}
"""Mark of a configuration field (`json_schema_extra=OPERATIONAL`) that changes how fast or where the work is done, but
not its result: it is not part of the digest by which an attempt is recognised as the same."""

BEHIND_DASHES: JsonDict = {**OPERATIONAL, "behind_dashes": True}
"""Mark of the operational field, a list, that receives the arguments after `--` on the command line (for vllm)."""

RARE: JsonDict = {"rare": True}
"""Mark of a configuration field whose option is only in `--help-all`, of every command."""


def about(topic: Topic, *marks: JsonDict) -> JsonDict:
    """Mark a configuration field (`json_schema_extra`) with the topic of its option, and with further marks."""
    merged: JsonDict = {"topic": topic}
    for mark in marks:
        merged |= mark
    return merged


Names = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""One name or several."""


def _one_or_more(value: Any) -> Any:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        if len(set(value)) < len(value) or not value:
            raise ValueError("each must be given once" if value else "at least one must be given")
        return value[0] if len(value) == 1 else list(value)
    return value


OneOrMore = Annotated[str | list[str], BeforeValidator(_one_or_more)]
"""One name, or a list of several. One is recorded as text."""

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""What a generator of random numbers starts from."""


def seed_after(seed: int, by: int) -> int:
    """Return the seed that comes so many after another; after the largest comes 0."""
    return (seed + by) % 2**32


Packing = Literal["tree", "plain"]
"""How token sequences are computed: as prefix trees (sweet.learn.tree), or each separately, with the same results."""


class Table(BaseModel):
    """A table of a TOML file whose keys are options of no stage; they may have dashes, as those of all tables."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _name_fields(cls, values: Any) -> Any:
        """Return the values by field.

        Raises:
            ValueError: a key that the table does not have; suggests the most similar one.
        """
        if not isinstance(values, Mapping):
            return values
        fields = {str(key).replace("-", "_"): value for key, value in values.items()}
        known = [name.replace("_", "-") for name in cls.model_fields]
        if extra := [key.replace("_", "-") for key in fields if key not in cls.model_fields]:
            raise ValueError(f"there is no {extra[0]}.{did_you_mean(extra[0], known)} Known here: {', '.join(known)}")
        return fields


class StageConfig(BaseModel):
    """Base of the configurations of stages: each field is one option of its command (see sweet.cli.fields)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    main_options: ClassVar[tuple[str, ...]] = ()
    """The fields whose options are in `--help` where a command has so many options that the others are only in
    `--help-all` (`sweet.cli.options.LONG`)."""

    @field_validator("*", mode="before")
    @classmethod
    def _meant(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse the empty text of a variable that is not set, which would mean a default or ".", and `true` of a file
        where a number is meant, which would be 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in (annotation, *get_args(annotation)):
            raise ValueError("must be a value")
        if value in ("", [""]):
            raise ValueError("must not be empty")
        return value

    def digest(self) -> str:
        """Return the sha256 of the settings that decide the outcome, as 16 hex digits."""
        return digest_of(self.outcome_settings())

    def outcome_settings(self) -> dict[str, Any]:
        """Return the fields that are not operational, as JSON types."""
        return self.model_dump(mode="json", exclude=self.operational())

    @classmethod
    def default_settings(cls) -> dict[str, Any]:
        """Return the defaults of all fields in recorded form."""
        return {name: list(value) if isinstance(value, list) else value for name, value in _defaults(cls).items()}

    @classmethod
    def option_words(cls, settings: Mapping[str, Any]) -> list[str]:
        """Return recorded settings as the words of a command line; only those that differ from the defaults."""
        defaults = cls.default_settings()
        words: list[str] = []
        tail: list[str] = []
        for name, value in settings.items():
            if name not in defaults or value is None or value == defaults[name]:
                continue
            if name == cls.behind_dashes():
                tail = ["--", *map(str, value if isinstance(value, list) else [value])]
            else:
                words += words_of_option(name, value)
        return words + tail

    @classmethod
    def operational(cls) -> set[str]:
        """Return the names of the operational fields."""
        return set(_operational(cls))

    @classmethod
    def behind_dashes(cls) -> str | None:
        """Return the name of the field that receives the arguments after `--`."""
        return next((name for name, info in cls.model_fields.items() if has_mark(info, "behind_dashes")), None)


# What the classes say of their fields is looked up once: a suggestion of what comes next compares hundreds of digests.
@cache
def _operational(config: type[StageConfig]) -> frozenset[str]:
    return frozenset(name for name, info in config.model_fields.items() if has_mark(info, "operational"))


@cache
def _defaults(config: type[StageConfig]) -> dict[str, Any]:
    """Return the defaults of all fields in recorded form. Pydantic needs milliseconds for those of one class."""
    return {
        name: None if info.is_required() else recorded(info.get_default(call_default_factory=True))
        for name, info in config.model_fields.items()
    }


def function_name(function: Callable[..., object]) -> str:
    """Return the name under which runs record a function, with a digest of its source where Python knows that: a
    function that is changed is another one. The source of what it calls does not count."""
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    try:
        return f"{name}#{digest_of(inspect.getsource(named))}"
    except (OSError, TypeError):  # it was not read from a file or a notebook
        return name


F = TypeVar("F", bound=StageConfig)


def with_function(function: Callable[..., object], config: StageConfig, recorded_as: type[F], field: str) -> F:
    """Return a configuration in which a field, which otherwise names what does something, names a Python function.

    Raises:
        UsageError: the configuration names something else there.
    """
    name = function_name(function)
    if field in config.model_fields_set:
        what = f"There are two {field}s: the function {name}, and the configuration's {getattr(config, field)}."
        raise UsageError(what, where=field, fix="leave one of them out")
    return recorded_as.model_validate({**config.model_dump(exclude_unset=True), field: name})


class MarkdownConfig(StageConfig):
    markdown: bool = False
    """Print Markdown for a pull request: a short report, or the comparison."""


class VerifiedConfig(StageConfig):
    verify: bool = Field(default=True, json_schema_extra=about("Failures, resuming, checks", RARE, OPERATIONAL))
    """Compare the sha256 of the artifacts that are read with the manifest. Their sizes and numbers of rows are compared
    in any case. The sums of large files are kept in the cache."""


class TrustConfig(StageConfig):
    trust: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Go on with recorded settings, or a recipe, that were not given on this machine, though they start programs, load
    code or send a key. Needed once; the error without it lists what they would do (docs/stages.md)."""


class PlannedConfig(VerifiedConfig, TrustConfig):
    """Configuration of a stage that `--dry-run` plans (sweet.stages.plans)."""

    resume: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Go on with the newest attempt of this stage that did not finish, with all its settings, a training from its last
    checkpoint. Options beside it replace those of that attempt, but for options that change the result, which must be
    equal. A training with options begins where there is no such attempt."""


def has_mark(info: FieldInfo, mark: str) -> bool:
    """Return whether a configuration's field has a mark (`OPERATIONAL`, `RARE`, …)."""
    return isinstance(info.json_schema_extra, dict) and bool(info.json_schema_extra.get(mark))


def recorded(value: Any) -> Any:
    """Return the value of a configuration's field as it is recorded in JSON."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def digest_of(value: Any) -> str:
    """Return the sha256 of a JSON value in canonical form, as 16 hex digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Progress(Protocol):
    """One progress bar; as a base class one that shows nothing."""

    def advance(self, by: int = 1) -> None:
        """Count so many more."""
        return

    def note(self, **figures: object) -> None:
        """Show these values next to the bar (loss=0.61, failed=2) instead of the former ones."""
        return


class _SilentProgress(Progress):
    pass


class Reporter(Protocol):
    """Receives the messages of a stage; as a base class it ignores those whose method is not defined.

    Its methods are called from several threads, and for every item.
    """

    def say(self, text: str) -> None:
        """Report one line. It may contain text from models or files, which a terminal must not get as it is."""
        return

    def warn(self, text: str) -> None:
        """Report a warning, in one line."""
        return

    def progress(self, title: str, total: int | None) -> AbstractContextManager[Progress]:
        """Return a context, whose value is the progress bar of a part of the work.

        Args:
            total: of the items; None where it is not known.
        """
        return nullcontext(_SilentProgress())


class Silent(Reporter):
    """A reporter that ignores everything, as stages have without one."""


M = TypeVar("M", bound=Record, covariant=True, default=Any)
"""The metrics of a stage, a `Record` of its own."""


@dataclass(frozen=True)
class StageResult(Generic[M]):
    """The result of a stage: its metrics and the artifacts that it made.

    Attributes:
        stopped: the user asked the stage to stop, when all that was left of its work was under way; it is finished, but
            nothing shall follow it.
    """

    stage: str
    run: Path
    metrics: M
    artifacts: list[Artifact] = field(default_factory=list)
    stopped: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "stage": self.stage,
            "run": str(self.run),
            "metrics": self.metrics.as_json(),
            "artifacts": [a.model_dump(mode="json", include={"id", "kind", "path", "rows"}) for a in self.artifacts],
        }
