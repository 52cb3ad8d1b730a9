"""A call of a command, from the words that were given to the exit code.

It is always the same: merge what was given, stop here for `--dry-run`, find or make the run, work, show the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweet.cli.command import Call, Command, Common
from sweet.cli.config_file import read_config
from sweet.cli.declaration import ArgumentSpec, Declaration, OptionSpec
from sweet.cli.exits import ended
from sweet.cli.options import Given, resolve
from sweet.cli.parser import CommandLine
from sweet.cli.reporter import ConsoleReporter
from sweet.cli.verbose import Verbose
from sweet.errors import Interrupted, UsageError
from sweet.stages.base import Reporter, Silent, StageConfig


def call(line: CommandLine, declared: Declaration, values: Mapping[str, Any], sources: Mapping[str, str]) -> int:
    """Do what was asked for; returns the exit code.

    Args:
        values: of the arguments and options, by name, as text.
        sources: where Typer has each from: COMMANDLINE, ENVIRONMENT, DEFAULT.
    """
    common = _common(values)
    return ended(lambda: _call(line, declared, common, values, sources), debug=common.debug)


def _common(values: Mapping[str, Any]) -> Common:
    given = {name: values[f"common_{name}"] for name in Common.__dataclass_fields__}
    return Common(**{**given, "config": None if given["config"] is None else Path(given["config"])})


def _call(
    line: CommandLine,
    declared: Declaration,
    common: Common,
    values: Mapping[str, Any],
    sources: Mapping[str, str],
) -> int:
    if common.quiet and common.verbose:
        raise UsageError("--quiet and --verbose contradict each other.", where="--quiet, --verbose", fix="give one")
    command: Command[Any] = line.load(declared.name)
    arguments = {argument.name: _argument(argument, values[argument.name]) for argument in declared.positional}
    given = _given(declared.options, values, sources)
    by_file = read_config(common.config, declared.name, _options_of_all(line, declared)) if common.config else {}
    merged = {**by_file, **given}
    config = resolve(command.config, declared.options, merged, declared.name)
    words = [
        word
        for option in declared.options
        if option.field in given and option.field not in arguments and given[option.field].flag
        for word in option.render(given[option.field].value)
    ]
    reporter: Reporter = Silent() if common.quiet else ConsoleReporter(stamped=common.verbose)
    one: Call[StageConfig] = Call(command, config, arguments, common, words, reporter)
    told = Verbose(one) if common.verbose else None
    if told:
        told.settings(declared, merged)
    try:
        (command.foresee if common.dry_run else command.work)(one)
    except (KeyboardInterrupt, Interrupted) as stop:
        what = stop.what if isinstance(stop, Interrupted) else "Stopped. What was done is kept."
        raise Interrupted(what, where=one.run, fix=one.again()) from stop
    finally:
        if told:
            told.what_was_done()
    return 0


def _argument(argument: ArgumentSpec, value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return Path(value) if argument.is_path and value is not None else value


def _given(options: tuple[OptionSpec, ...], values: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Given]:
    """The options that came as a flag or from the environment, by field."""
    found: dict[str, Given] = {}
    for option in options:
        source = sources.get(option.field)
        if source in ("COMMANDLINE", "ENVIRONMENT"):
            by_flag = source == "COMMANDLINE"
            value = values[option.field]
            value = list(value) if isinstance(value, tuple) else value
            found[option.field] = Given(value, option.flag if by_flag else option.envvar, by_flag)
    return found


def _options_of_all(line: CommandLine, declared: Declaration) -> dict[str, tuple[OptionSpec, ...]]:
    """The options of every command: a configuration file may speak to all of them."""
    own = {declared.name: declared.options}
    return {name: line.declaration(name, looking=True).options for name in line.summaries} | own
