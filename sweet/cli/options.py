"""From a stage's configuration class to command-line options, and back from what was given to a configuration.

One field is one option. Everything an option needs stands at the field: its name (`num_tasks` is `--num-tasks`,
`from_` is `--from`), type, default, bounds, and the docstring under it, which is the help. `option_specs` reads them,
`as_parameter` hands them to Typer as one parameter of a signature made at run time, and `resolve` merges what was
given, in this order: flag, environment variable (`SWEET_ROLLOUT_NUM_TASKS`), configuration file, default. Typer only
tells apart what was given from what was not; pydantic decides whether it is right, wherever it came from.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from rich.markup import escape

from sweet.errors import UsageError
from sweet.stages.base import StageConfig

C = TypeVar("C", bound=StageConfig)

METAVARS: dict[Any, str] = {bool: "", int: "N", float: "X", str: "TEXT", Path: "PATH"}
OPERATIONAL_PANEL = "How it is run (the outcome stays the same)"


@dataclass(frozen=True)
class OptionSpec:
    """One option of one command.

    Attributes:
        field: the name in the configuration class.
        key: the name in a configuration file, and without the dashes on the command line.
        envvar: the environment variable.
        metavar: what the help shows for a value.
        choices: the values there are, where the type says them.
        default: shown in the help; None where there is none to show.
        bounds: in words, empty where there are none.
    """

    field: str
    key: str
    envvar: str
    metavar: str
    choices: tuple[str, ...]
    is_switch: bool
    is_list: bool
    default: Any
    help: str
    bounds: str
    required: bool
    operational: bool

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    def render(self, value: Any) -> list[str]:
        """The option as words of a command line that give it this value."""
        if self.is_switch:
            return [self.flag if value else f"--no-{self.key}"]
        values = value if isinstance(value, list | tuple) else [value]
        return [word for item in values for word in (self.flag, str(item))]


@dataclass(frozen=True)
class Given:
    """A value somebody gave, and where: `--top-p`, `SWEET_ROLLOUT_TOP_P` or `sweet.toml, key rollout.top-p`."""

    value: Any
    where: str
    flag: bool = False


def env_prefix(command: str) -> str:
    return "SWEET_" + command.upper().replace("-", "_").replace(" ", "_")


def option_specs(config: type[StageConfig], command: str) -> list[OptionSpec]:
    """The options of a command, in the order of the fields."""
    return [_spec(name, info, command) for name, info in config.model_fields.items()]


def _spec(name: str, info: FieldInfo, command: str) -> OptionSpec:
    extra = info.json_schema_extra
    required = info.is_required()
    kind, is_list = _value_type(info.annotation)
    choices = tuple(str(choice) for choice in typing.get_args(kind)) if typing.get_origin(kind) is Literal else ()
    return OptionSpec(
        field=name,
        key=name.rstrip("_").replace("_", "-"),
        envvar=f"{env_prefix(command)}_{name.rstrip('_').upper()}",
        metavar="|".join(choices) or METAVARS[kind],
        choices=choices,
        is_switch=kind is bool and not is_list,
        is_list=is_list,
        default=None if required else info.get_default(call_default_factory=True),
        help=" ".join((info.description or "").split()),
        bounds=_bounds(info),
        required=required,
        operational=isinstance(extra, dict) and bool(extra.get("operational")),
    )


def _value_type(annotation: Any) -> tuple[Any, bool]:
    """The type of one value and whether there may be several. None in a union only says "may be left out"."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
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


def as_parameter(spec: OptionSpec) -> inspect.Parameter:
    """The option as one parameter of a signature that Typer reads.

    To Typer every value is text (or a switch): pydantic converts it, so that a wrong one is reported in the same words
    wherever it came from.
    """
    declaration = f"{spec.flag}/--no-{spec.key}" if spec.is_switch else spec.flag
    default, annotation = _typer_default(spec)
    remarks = [remark for remark in (spec.bounds, "required" if spec.required else "") if remark]
    option = typer.Option(
        default,
        declaration,
        envvar=spec.envvar,
        show_envvar=False,
        metavar=None if spec.is_switch else spec.metavar,
        help=escape(spec.help + "".join(f" ({remark})" for remark in remarks)),
        show_default=default not in (None, "", []),
        autocompletion=_completion(spec.choices) if spec.choices else None,
        rich_help_panel=OPERATIONAL_PANEL if spec.operational else None,
    )
    return inspect.Parameter(spec.field, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)


def _typer_default(spec: OptionSpec) -> tuple[Any, Any]:
    if spec.is_switch:
        return spec.default, bool
    if spec.is_list:
        return [str(item) for item in spec.default or ()], list[str]
    return None if spec.default is None else str(spec.default), str | None


def _completion(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def given_on_command_line(ctx: typer.Context, specs: list[OptionSpec], values: Mapping[str, Any]) -> dict[str, Given]:
    """The options that came as a flag or from the environment, by field."""
    found: dict[str, Given] = {}
    for spec in specs:
        source = ctx.get_parameter_source(spec.field)
        if source is None or source.name not in ("COMMANDLINE", "ENVIRONMENT"):
            continue
        by_flag = source.name == "COMMANDLINE"
        found[spec.field] = Given(values[spec.field], spec.flag if by_flag else spec.envvar, by_flag)
    return found


def resolve(config: type[C], specs: list[OptionSpec], given: Mapping[str, Given], command: str) -> C:
    """The configuration of what was given.

    Raises:
        UsageError: a value is not as it must be, or a required one is missing; names where each came from.
    """
    try:
        return config.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as error:
        by_field = {spec.field: spec for spec in specs}
        problems, places = [], []
        for problem in error.errors(include_url=False):
            name = str(problem["loc"][0]) if problem["loc"] else ""
            spec = by_field.get(name)
            place = given[name].where if name in given else spec.flag if spec else ""
            if problem["type"] == "missing" and spec:
                problems.append(f"{spec.flag} is needed.")
            else:
                problems.append(": ".join(filter(None, (place, _sentence(problem)))))
            if place and place not in places:
                places.append(place)
        raise UsageError(
            "\n".join(problems), where=", ".join(places) or None, fix=f"sweet {command} --help shows what is allowed"
        ) from error


def _sentence(problem: Mapping[str, Any]) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    got = f", not {problem['input']!r}" if isinstance(problem["input"], str | int | float) else ""
    return f"{message}{got}."
