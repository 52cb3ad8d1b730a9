"""Derives a command's options from its configuration class, and a configuration from the settings that were given.

One field is one option. The field defines it: its name (`num_tasks` is `--num-tasks`, `from_` is `--from`), type,
default, bounds and docstring, which is the help. `option_specs` reads the fields. `resolve` validates the settings,
which are merged in this order of precedence: flag, environment variable (`SWEET_ROLLOUT_NUM_TASKS`), configuration
file, default. Pydantic validates every value, whatever its source.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sweet.cli.declaration import OptionSpec, complete_help, env_prefix, variable_part
from sweet.errors import UsageError
from sweet.stages.base import StageConfig, has_mark, option_key, recorded
from sweet.suggestions import did_you_mean

C = TypeVar("C", bound=StageConfig)

METAVARS: dict[Any, str] = {bool: "", int: "N", float: "X", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Setting:
    """A value that was given, and its source.

    Attributes:
        where: `--top-p`, `SWEET_ROLLOUT_TOP_P` or `sweet.toml, key rollout.top-p`.
        is_flag: whether it comes from the command line.
        renamed_to: the current name, if the value was given under a former one.
    """

    value: Any
    where: str
    is_flag: bool = False
    renamed_to: str = ""


def option_specs(config: type[StageConfig], command: str) -> list[OptionSpec]:
    """Return the options of a command, in the order of the fields."""
    return [_spec(config, name, info, command) for name, info in config.model_fields.items()]


def _spec(config: type[StageConfig], name: str, info: FieldInfo, command: str) -> OptionSpec:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    required = info.is_required()
    kind, is_list = _value_type(info.annotation)
    choices = tuple(str(choice) for choice in typing.get_args(kind)) if typing.get_origin(kind) is Literal else ()
    return OptionSpec(
        field=name,
        key=option_key(name),
        envvar=f"{env_prefix(command)}_{variable_part(option_key(name))}",
        metavar="|".join(choices) or METAVARS[kind],
        choices=choices,
        is_switch=kind is bool and not is_list,
        is_list=is_list,
        default=None if required else recorded(info.get_default(call_default_factory=True)),
        help=" ".join((info.description or "").split()),
        bounds=_bounds(info),
        required=required,
        operational=name in config.operational(),
        topic=str(extra.get("topic", "")),
        main=name in config.main_options,
        rare=has_mark(info, "rare"),
        hidden=has_mark(info, "hidden"),
        former_key="",
        former_values={},
    )


def _value_type(annotation: Any) -> tuple[Any, bool]:
    """Return the type of one value, and whether there may be several. None in a union only means "optional"."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if members == [str, list[str]]:  # one or several (sweet.stages.base.OneOrMore)
            return str, True
        return _value_type(members[0]) if len(members) == 1 else (str, False)
    if origin in (list, tuple):
        return _value_type(arguments[0])[0], True
    if origin is Annotated:
        return _value_type(arguments[0])
    if origin is Literal or annotation in METAVARS:
        return annotation, False
    raise TypeError(f"A field of type {annotation} cannot be an option.")


def _bounds(info: FieldInfo) -> str:
    words = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
    limits = [(word, getattr(item, name)) for name, word in words for item in info.metadata if hasattr(item, name)]
    return " and ".join(f"{word} {limit:g}" for word, limit in limits)


def resolve(config: type[C], specs: Sequence[OptionSpec], settings: Mapping[str, Setting], command: str) -> C:
    """Return the configuration with the given settings, by field.

    Raises:
        UsageError: a value is invalid or a required one is missing; names the source of each.
    """
    try:
        return config.model_validate({name: item.value for name, item in settings.items()})
    except ValidationError as error:
        by_field = {spec.field: spec for spec in specs}
        problems, sources = [], []
        for problem in error.errors(include_url=False):
            name = str(problem["loc"][0]) if problem["loc"] else ""
            spec = by_field.get(name)
            source = settings[name].where if name in settings else spec.flag if spec else ""
            if problem["type"] == "missing" and spec:
                problems.append(f"{spec.flag} is required.")
            else:
                meant = did_you_mean(str(problem["input"]), spec.choices) if spec else ""
                problems.append(": ".join(filter(None, (source, _sentence(problem)))) + meant)
            if source and source not in sources:
                sources.append(source)
        raise UsageError(
            "\n".join(problems),
            where=", ".join(sources) or None,
            fix=f"sweet {command} {complete_help(specs)} shows what is allowed",
        ) from error


def _sentence(problem: Mapping[str, Any]) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    got = f", not {problem['input']!r}" if isinstance(problem["input"], str | int | float) else ""
    return f"{message}{got}."
