"""Splits the words of a command into the values of its arguments and options, with Typer.

Typer gets a function whose signature is built from the command's declaration. It only splits words: every value stays
text, and the configuration class decides which values are valid (`sweet.cli.options.resolve`). What it makes of a
command is kept, because that takes most of the time of a call. Help, completion and environment variables do not go
through Typer, so that they answer without importing it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import typer
from typer.main import get_command

from sweet.cli.declaration import HELP, Declaration, complete_help
from sweet.cli.unknown import unknown_option
from sweet.errors import UsageError

SEPARATOR = "--"
"""The word after which a command with a tail takes everything as its tail."""

Positional: TypeAlias = tuple[str, str | None, bool]
"""The name of an argument, its placeholder, and whether it is required."""
Option: TypeAlias = tuple[str, tuple[str, ...], bool, bool]
"""The name of an option's field, its flags, whether it is a switch, and whether it may be given several times."""


def parse(declaration: Declaration, words: Sequence[str]) -> dict[str, Any]:
    """Return the value of each argument and option, by field name: text, a list of texts or a bool; None if not given.

    Raises:
        UsageError: an unknown option, a missing value or argument, or too many arguments.
    """
    own, tail = list(words), None
    if declaration.tail is not None and SEPARATOR in own:
        at = own.index(SEPARATOR)
        own, tail = own[:at], own[at + 1 :]
    try:
        with _command(declaration).make_context(_path(declaration), own) as context:
            values = {name: _listed(value) for name, value in context.params.items()}
    except typer.TyperException as error:
        raise _usage_error(declaration, error) from None
    if declaration.tail is not None:
        if stray := values[declaration.tail.name]:
            raise UsageError(
                f"Got unexpected extra argument ({' '.join(stray)}); vllm's options go after --.",
                fix=_fix(declaration),
            )
        values[declaration.tail.name] = tail or None
    return values


def _listed(value: Any) -> Any:
    """Return several values as a list, and none as None."""
    return list(value) or None if isinstance(value, list | tuple) else value


def _path(declaration: Declaration) -> str:
    return f"sweet {declaration.name}"


def _usage_error(declaration: Declaration, error: typer.TyperException) -> UsageError:
    flag = getattr(error, "option_name", None)  # of an unknown option, and of one without a value
    if flag is not None and not any(flag in option.flags for option in declaration.accepted):
        shown = [flag for option in declaration.accepted if not option.hidden for flag in option.flags]
        help_flag = complete_help(declaration.options)
        return unknown_option(_path(declaration), flag, [*shown, HELP[1], help_flag], help_flag)
    return UsageError(error.format_message(), fix=_fix(declaration))


def _fix(declaration: Declaration) -> str:
    return f"{_path(declaration)} {complete_help(declaration.options)} shows what is allowed"


def _command(declaration: Declaration) -> Any:
    arguments = tuple((one.name, one.metavar, one.required) for one in declaration.arguments)
    tail = declaration.tail.name if declaration.tail else None
    options = (*declaration.accepted, *declaration.former)
    return _built(
        declaration.name,
        arguments,
        tail,
        tuple((one.field, tuple(one.flags), one.is_switch, one.is_list) for one in options),
    )


@cache
def _built(name: str, arguments: tuple[Positional, ...], tail: str | None, options: tuple[Option, ...]) -> Any:
    """Return Typer's form of a command. It keeps no state between calls."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, add_help_option=False)(_callback(arguments, tail, options))
    return get_command(app)


def _callback(arguments: Sequence[Positional], tail: str | None, options: Sequence[Option]) -> Callable[..., None]:
    """Return a function with one parameter for each argument and option. It is never called."""

    def callback() -> None: ...

    parameters = _parameters(arguments, tail, options)
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return callback


def _parameters(
    arguments: Sequence[Positional], tail: str | None, options: Sequence[Option]
) -> list[inspect.Parameter]:
    parameters = [
        _parameter(
            name,
            str if required else str | None,
            typer.Argument(... if required else None, metavar=metavar, parser=_as_typed),
        )
        for name, metavar, required in arguments
    ]
    if tail is not None:
        parameters.append(_parameter(tail, list[str] | None, typer.Argument(None, parser=_as_typed)))
    return [*parameters, *(_option(*option) for option in options)]


def _option(field: str, flags: Sequence[str], is_switch: bool, is_list: bool) -> inspect.Parameter:
    if is_switch:
        return _parameter(field, bool | None, typer.Option(None, "/".join(flags)))
    kind = list[str] | None if is_list else str | None
    return _parameter(field, kind, typer.Option(None, flags[0], parser=_as_typed))


def _parameter(name: str, annotation: Any, declared: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)


def _as_typed(text: str) -> str:
    """Return the text unchanged. Typer's own conversion refuses words that are not UTF-8, such as names of files."""
    return text
