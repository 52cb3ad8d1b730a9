"""Typer's errors as those of `sweet`, with a suggestion for what was misspelt, and variables that no command reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer

from sweet.cli.config_file import source
from sweet.cli.options import complete_help, variable
from sweet.errors import UsageError
from sweet.suggestions import did_you_mean, nearest

PREFIX = "SWEET_"
_ALIKE = 0.8
"""Similarity from which a variable outside of every command's names is taken for a misspelt setting. Others may belong
to the user's own programs."""


def usage_error(error: typer.TyperException) -> UsageError:
    """Return an error of Typer as a UsageError."""
    context: Any = getattr(error, "ctx", None)
    if context is None:
        return UsageError(error.format_message())
    name = context.command_path
    spec = getattr(context.command, "spec", None)
    options = [] if spec is None else [*spec.options, *spec.common]
    help_flag = "--help" if spec is None else complete_help(spec.options)
    fix = f"{name} {help_flag} shows what is allowed"
    flag = getattr(error, "option_name", None)  # of an unknown option, and of one without a value
    known = [flag for option in options for flag in option.flags] + ["--help", help_flag]
    if spec is None:
        known += [word for parameter in context.command.params for word in parameter.opts]
    if flag is not None and flag not in known:
        meant = did_you_mean(flag.lstrip("-"), [word.removeprefix("--") for word in known], "--")
        return UsageError(f"{name} has no option {flag}.{meant}", fix=fix)
    option = next((option for option in options if option.field == getattr(_parameter(error), "name", None)), None)
    if isinstance(error, typer.BadParameter) and option is not None:
        where = source(context, option)
        message = error.message.removeprefix("Input ").rstrip(".")
        value = f", not {os.environ.get(where)!r}" if where == option.envvar else ""
        return UsageError(f"{where}: {message}{value}.", where=where, fix=fix)
    message = error.format_message()
    if spec is not None and spec.tail is not None and "extra argument" in message:
        message = f"{message.rstrip('.')}; vllm's options go after --."
    return UsageError(message, fix=fix)


def _parameter(error: typer.TyperException) -> Any:
    return getattr(error, "param", None)


def unknown_command(parent: str, word: str, known: Iterable[str]) -> UsageError:
    """Return the error for a word that is not a command of `parent` (`sweet`, `sweet data`)."""
    return UsageError(
        f"{parent} has no command {word}.{did_you_mean(word, known)}", fix=f"{parent} --help shows the commands"
    )


def unknown_variables(program: Any, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield a warning for each variable that has the prefix of a command, or nearly the name of a setting, and that no
    command reads. Values are not shown: they may be keys.

    Args:
        program: the `sweet.cli.group.Group` of all commands.
    """
    given = sorted(name for name in environment if name.startswith(PREFIX))
    if not given:
        return
    from sweet.cli.reference import VARIABLES

    settings = [name for name in VARIABLES if name.startswith(PREFIX)]
    commands = {variable(command, ""): command for command in program.names()}
    for name in given:
        if name in settings:
            continue
        prefix = max((prefix for prefix in commands if name.startswith(prefix)), key=len, default="")
        read = [option.envvar for option in program.options(commands[prefix], common=True)] if prefix else []
        alike = nearest(name, settings, _ALIKE)
        if name not in read and (prefix or alike):
            meant = f" Did you mean {alike}?" if alike else did_you_mean(name, read)
            yield f"The environment variable {name} is ignored: no command reads it.{meant}"
