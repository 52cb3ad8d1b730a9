"""Splits the words of a command into the values of its arguments and options, with Typer.

Typer gets a function whose signature is built from the command's declaration. It only splits words: every value stays
text, and the configuration class decides which values are valid (`sweet.cli.options.resolve`). Help, completion and
environment variables do not go through Typer, so that they answer without importing it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.main import get_command

from sweet.cli.declaration import HELP, Declaration, OptionSpec, complete_help
from sweet.cli.unknown import unknown_option
from sweet.errors import UsageError

SEPARATOR = "--"
"""The word after which a command with a tail takes everything as its tail."""


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
        with get_command(_app(declaration)).make_context(_path(declaration), own) as context:
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


def _app(declaration: Declaration) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(declaration.name, add_help_option=False)(_callback(declaration))
    return app


def _callback(declaration: Declaration) -> Callable[..., None]:
    """Return a function with one parameter for each argument and option. It is never called."""

    def callback() -> None: ...

    parameters = _parameters(declaration)
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return callback


def _parameters(declaration: Declaration) -> list[inspect.Parameter]:
    parameters = [
        _parameter(
            argument.name,
            str if argument.required else str | None,
            typer.Argument(... if argument.required else None, metavar=argument.metavar, parser=_as_typed),
        )
        for argument in declaration.arguments
    ]
    if declaration.tail is not None:
        parameters.append(_parameter(declaration.tail.name, list[str] | None, typer.Argument(None, parser=_as_typed)))
    return [*parameters, *map(_option, [*declaration.accepted, *declaration.former])]


def _option(option: OptionSpec) -> inspect.Parameter:
    if option.is_switch:
        return _parameter(option.field, bool | None, typer.Option(None, "/".join(option.flags)))
    kind = list[str] | None if option.is_list else str | None
    return _parameter(option.field, kind, typer.Option(None, option.flag, parser=_as_typed))


def _parameter(name: str, annotation: Any, declared: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)


def _as_typed(text: str) -> str:
    """Return the text unchanged. Typer's own conversion refuses words that are not UTF-8, such as names of files."""
    return text
