"""Derives a command's options from its configuration class, and a configuration from the settings that were given.

One field is one option. The field defines it: its name (`num_tasks` is `--num-tasks`, `from_` is `--from`), type,
default, bounds and docstring, which is the help. `resolve` validates the settings, which Typer has merged in this order
of precedence: flag, environment variable (`SWEET_ROLLOUT_NUM_TASKS`), configuration file, default. Pydantic validates
every value, whatever its source.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sweet.cli.config_file import source
from sweet.cli.options import Option, Setting, complete_help, variable
from sweet.errors import UsageError, in_words, not_value
from sweet.hints import option_key
from sweet.stages.base import StageConfig, has_mark, recorded
from sweet.suggestions import did_you_mean

C = TypeVar("C", bound=StageConfig)

METAVARS: dict[Any, str] = {bool: "", int: "N", float: "X", str: "TEXT", Path: "PATH"}


def options_of_class(config: type[StageConfig], command: str) -> list[Option]:
    """Return the options of a command, in the order of the fields."""
    return [_option(config, name, info, command) for name, info in config.model_fields.items()]


def _option(config: type[StageConfig], name: str, info: FieldInfo, command: str) -> Option:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    required = info.is_required()
    kind, is_list = _value_type(info.annotation)
    choices = [str(choice) for choice in typing.get_args(kind)] if typing.get_origin(kind) is Literal else []
    return Option(
        field=name,
        envvar=variable(command, option_key(name)),
        help=" ".join((info.description or "").split()),
        metavar="|".join(choices) or METAVARS[kind],
        choices=choices,
        is_switch=kind is bool and not is_list,
        is_list=is_list,
        default=None if required else recorded(info.get_default(call_default_factory=True)),
        bounds=_bounds(info),
        required=required,
        operational=name in config.operational(),
        topic=str(extra.get("topic", "")),
        main=name in config.main_options,
        rare=has_mark(info, "rare"),
        is_tail=has_mark(info, "behind_dashes"),
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
    return " and ".join(f"{word} {limit:,.12g}" for word, limit in limits)


def settings_of(context: typer.Context, options: Sequence[Option]) -> dict[str, Setting]:
    """Return the values of options that were given, by field."""
    return {
        option.field: Setting(context.params[option.field], where)
        for option in options
        if (where := source(context, option)) and context.params.get(option.field) is not None
    }


def resolve(config: type[C], options: Sequence[Option], settings: Mapping[str, Setting], command: str) -> C:
    """Return the configuration with the given settings, by field.

    Raises:
        UsageError: a value is invalid or a required one is missing; names the source of each.
    """
    try:
        return config.model_validate({name: item.value for name, item in settings.items()})
    except ValidationError as error:
        by_field = {option.field: option for option in options}
        problems, sources = [], []
        for problem in error.errors(include_url=False):
            name = str(problem["loc"][0]) if problem["loc"] else ""
            option = by_field.get(name)
            where = settings[name].where if name in settings else option.flag if option else ""
            if problem["type"] == "missing" and option:
                problems.append(f"{option.flag} is required.")
            else:
                meant = did_you_mean(str(problem["input"]), option.choices) if option else ""
                what = f"{in_words(problem)}{not_value(problem['input'])}."
                problems.append(": ".join(filter(None, (where, what))) + meant)
            sources.append(where)
        raise UsageError(
            "\n".join(problems),
            where=", ".join(dict.fromkeys(filter(None, sources))) or None,
            fix=f"sweet {command} {complete_help(options)}",
        ) from error
