"""Typed records that are written as JSON objects: the metrics of stages, the meta of artifacts, and plans.

A record is a frozen model whose fields are the keys of the object, in their order; the docstring of a field says what
it is, and docs/commands.md is generated from these (`documentation`). A field that was not given is omitted, whatever
its default, and so is one whose `exclude_if` says so: a key that does not apply is absent and not null. Two things are
written flat, as keys of the object itself: a `Rate`, with its interval beside it, and a field marked `Flat`, whose
items are known only at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from sweet.json_value import JsonValue
from sweet.runs.manifest import Artifact
from sweet.tasks.base import is_none

OMITTED_IF_NONE = Field(default=None, exclude_if=is_none)
"""The declaration of a field that is omitted where it does not apply, so that it is never null."""


@dataclass(frozen=True)
class Flat:
    """Marks a field, a mapping or another record, whose items are written as keys of the record itself.

    Attributes:
        known: the keys to document, and what they are; none for a record, whose fields say it.
    """

    known: Mapping[str, str] = field(default_factory=dict)


class Record(BaseModel):
    """Base of all records."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True)

    def as_json(self) -> dict[str, Any]:
        """The JSON object, without the fields that were not given or are excluded.

        It is written here and not by a serializer of pydantic, which turns an interrupt (Ctrl-C) that arrives in one
        into a warning or an error of its own.
        """
        json_object: dict[str, Any] = {}
        for name, info in type(self).model_fields.items():
            if name not in self.model_fields_set:
                continue
            value = getattr(self, name)
            if info.exclude_if is not None and info.exclude_if(value):
                continue
            if isinstance(value, Rate | UnknownRate):
                json_object |= value.flat(name)
            elif not _is_flat(info):
                json_object[info.alias or name] = _as_json(value)
            elif isinstance(value, Mapping):
                for key, item in value.items():
                    json_object |= item.flat(key) if isinstance(item, Rate | UnknownRate) else {key: _as_json(item)}
            elif value is not None:
                json_object |= _as_json(value)
        return json_object


class UnknownRate(BaseModel):
    """A rate of nothing: written as the three keys of a `Rate`, each null."""

    model_config = ConfigDict(frozen=True)

    def flat(self, name: str) -> dict[str, float | None]:
        """The three keys under which it is written."""
        return dict.fromkeys((name, f"{name}_ci_low", f"{name}_ci_high"))


class Rate(BaseModel):
    """A mean with its 95 % interval, rounded to six decimals.

    In a record it is written as NAME, NAME_ci_low and NAME_ci_high.
    """

    model_config = ConfigDict(frozen=True)

    value: float
    ci_low: float
    ci_high: float

    def flat(self, name: str) -> dict[str, float | None]:
        """The three keys under which it is written."""
        return {name: self.value, f"{name}_ci_low": self.ci_low, f"{name}_ci_high": self.ci_high}


AnyRate = Rate | UnknownRate


def rate_of(metrics: Mapping[str, Any], name: str) -> AnyRate:
    """Return a rate from recorded metrics; unknown where it is missing."""
    value, low, high = (metrics.get(key) for key in (name, f"{name}_ci_low", f"{name}_ci_high"))
    if not all(isinstance(number, int | float) for number in (value, low, high)):
        return UnknownRate()
    return Rate(value=value, ci_low=low, ci_high=high)


class RecordedRecord(Record):
    """Base of records that are read back from a manifest.

    Another version of the program, or a user's edit, may have left out any key, so every field of a subclass has a
    default.
    """

    @classmethod
    def read(cls, values: Mapping[str, JsonValue]) -> Self:
        """Return the record of a JSON object.

        A key that is missing, or whose value does not have its type, gets its default. Unknown keys are ignored, except
        where a field marked `Flat` holds them.
        """
        fields = cls.model_fields
        known: dict[str, object] = {name: values[name] for name in fields if name in values}
        flat = next((name for name, info in fields.items() if _is_flat(info)), None)
        if flat is not None:
            known[flat] = {key: value for key, value in values.items() if key not in fields}
        try:
            return cls.model_validate(known)
        except ValidationError as error:
            wrong = {detail["loc"][0] for detail in error.errors(include_url=False)}
            return cls.model_validate({name: value for name, value in known.items() if name not in wrong})


class Meta(RecordedRecord):
    """Base of the meta of artifacts (`Artifact.meta`)."""

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """Return the meta of an artifact; see `read`."""
        return cls.read(artifact.meta)


def documentation(record: type[Record]) -> Iterator[tuple[str, str]]:
    """The keys of a record's JSON object, and what they are. Of a rate only the name is given, not its interval."""
    for name, info in record.model_fields.items():
        marks = [mark for mark in info.metadata if isinstance(mark, Flat)]
        if not marks:
            yield info.alias or name, " ".join((info.description or "").split())
        else:
            kinds = info.annotation, *get_args(info.annotation)  # the classes of X | None are its arguments
            inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Record)), None)
            yield from marks[0].known.items() if inner is None else documentation(inner)


def _is_flat(info: FieldInfo) -> bool:
    return any(isinstance(mark, Flat) for mark in info.metadata)


def _as_json(value: object) -> Any:
    """Return what is written for a value of a record."""
    if isinstance(value, Record):
        return value.as_json()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return to_jsonable_python(value)
