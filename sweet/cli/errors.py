"""Typer's errors as those of `sweet`, with a suggestion for what was misspelt, and variables that no command reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
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
    fix = f"{name} {help_flag}"
    flag = getattr(error, "option_name", None)  # of an unknown option, and of one without a value
    flags = [flag for option in options for flag in option.flags] + ["--help", help_flag]
    if spec is None:
        flags += [word for parameter in context.command.params for word in parameter.opts]
    if flag is not None and flag not in flags:
        meant = did_you_mean(flag.lstrip("-"), [word.removeprefix("--") for word in flags], "--")
        return UsageError(f"{name} has no option {flag}.{meant}", fix=fix)
    parameter = getattr(getattr(error, "param", None), "name", None)
    option = next((option for option in options if option.field == parameter), None)
    if isinstance(error, typer.BadParameter) and option is not None:
        where = source(context, option)
        message = error.message.removeprefix("Input ").rstrip(".")
        value = f", not {os.environ.get(where)!r}" if where == option.envvar else ""
        return UsageError(f"{where}: {message}{value}.", where=where, fix=fix)
    message = error.format_message()
    if spec is not None and spec.tail is not None and "extra argument" in message:
        message = f"{message.rstrip('.')}; vllm's options go after --."
    return UsageError(message, fix=fix)


def unknown_command(parent: str, word: str, commands: Iterable[str]) -> UsageError:
    """Return the error for a word that is not a command of `parent` (`sweet`, `sweet data`). What other programs call
    the commands `help` and `version` are options."""
    meant = nearest(word, [*commands, *_OPTIONS])
    flag = _OPTIONS.get(meant or "")
    suggested = f" Did you mean {f'{parent} {flag}' if flag else meant}?" if meant else ""
    return UsageError(f"{parent} has no command {word}.{suggested}", fix=f"{parent} {flag or '--help'}")


_OPTIONS = {"help": "--help", "version": "--version"}


def unknown_variables(program: Any) -> Iterator[str]:
    """Yield a warning for each variable that has the prefix of a command, or nearly the name of a setting, and that no
    command reads. Values are not shown: they may be keys.

    Args:
        program: the `sweet.cli.group.Group` of all commands.
    """
    variables = sorted(name for name in os.environ if name.startswith(PREFIX))
    if not variables:
        return
    settings = [name for name in VARIABLES if name.startswith(PREFIX)]
    commands = {variable(command, ""): command for command in program.names()}
    for name in variables:
        if name in settings:
            continue
        prefix = max((prefix for prefix in commands if name.startswith(prefix)), key=len, default="")
        read = [option.envvar for option in program.options(commands[prefix], common=True)] if prefix else []
        alike = nearest(name, settings, _ALIKE)
        if name not in read and (prefix or alike):
            meant = f" Did you mean {alike}?" if alike else did_you_mean(name, read)
            yield f"The environment variable {name} is ignored: no command reads it.{meant}"


VARIABLES: dict[str, str] = {
    "OPENAI_API_KEY": "API key for every server that requires one",
    "SWEET_AGENT_API_KEY": "API key for the agent's server; overrides `OPENAI_API_KEY`",
    "SWEET_SIM_API_KEY": "the same for the simulated human, and for the model of `sweet data describe` or `synthesise`",
    "SWEET_JUDGE_API_KEY": "the same for the judge, and for `--check-model` of `sweet data describe`",
    "OPENAI_BASE_URL": "address of a model that is given none and is not a directory of this machine",
    "AZURE_OPENAI_ENDPOINT": "the same, at Azure",
    "OPENAI_ADMIN_KEY": "not used; removed from what is shown and written, as all keys are",
    "AZURE_OPENAI_API_KEY": "API key for Azure, where the role has none of its own",
    "OPENAI_API_VERSION": "version of Azure's interface, where the address has none (`?api-version=…`)",
    "SSL_CERT_FILE": "file of certificates that are trusted, as openai reads it",
    "SSL_CERT_DIR": "folder of certificates that are trusted, as openai reads it",
    "SWEET_GATEWAY_KEY": "key of `sweet gateway`; without it one is drawn",
    "SWEET_SESSION": "set for a program of `--harness`: the address of its session",
    "SWEET_TASK": "set for a program of `--harness`: what it may know of its task, as JSON",
    "SWEET_NOTIFY": "address that every stage notifies of its end; `off` for no notification",
    "SWEET_DATA": "folder for downloads of `sweet data`; default: the user's data folder",
    "SWEET_CACHE": "folder for recomputable data: expected values of tests, "
    "options of commands; default: the user's cache folder",
    "SWEET_SANDBOX_IMAGE": "image of the sandbox tier `docker`",
    "SWEET_FIREFOX": "path of the Firefox that renders pages",
    "SWEET_BROWSER_DRIVER": "`playwright` or `direct`: how Firefox is controlled",
    "SWEET_OPENRLHF_PYTHON": "Python of the environment with OpenRLHF",
    "HF_ENDPOINT": "address of the model hub",
    "HF_HUB_OFFLINE": "1 disables requests to the hub",
    "HF_TOKEN": "token of the hub, for gated models and datasets",
    "NO_COLOR": "no colours",
}
"""Environment variables that do not belong to an option."""
