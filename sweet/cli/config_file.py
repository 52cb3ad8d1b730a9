"""`--config FILE`: options from a TOML file that several commands share, as the defaults of Typer (`default_map`).

A table applies to the command with its name (`[train-critic]`; `[data-import]` for `sweet data import`), keys above the
tables to every command with such an option. Every command checks the whole file, so that a misspelt key is reported
before hours of work with a default instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from sweet.cli.options import Option, Setting, given_as
from sweet.toml_file import parse_options, read_text, spelled, unknown_name

_SETTINGS = "sweet.config_file"
"""The key of a context under which the settings of its file are."""


def use_config(context: typer.Context, path: str | None) -> str | None:
    """Make the settings of the file the defaults of the command that is called: the callback of `--config`."""
    if path is not None and not context.resilient_parsing:
        program: Any = context.find_root().command
        called = context.command_path.partition(" ")[2]
        settings = read_config(Path(path), called, program.names(), program.options)
        context.default_map = {field: setting.value for field, setting in settings.items()}
        context.meta[_SETTINGS] = settings
    return path


def source(context: typer.Context, option: Option) -> str:
    """Return where the value of an option comes from: the flag, the variable, or the file and the key; empty for its
    default."""
    kind = given_as(context, option.field)
    if kind == "DEFAULT_MAP":
        settings: dict[str, Setting] = context.meta[_SETTINGS]
        return settings[option.field].where
    return {"COMMANDLINE": option.flag, "ENVIRONMENT": option.envvar}.get(kind, "")


def read_config(
    path: Path, command: str, commands: Iterable[str], options_of: Callable[[str], Sequence[Option]]
) -> dict[str, Setting]:
    """Return the settings of one command, by field.

    Args:
        commands: the names of all commands.
        options_of: returns the options of a command. Commands that the file does not concern are not asked for.

    Raises:
        InputError: no such file, or not TOML.
        UsageError: a table or key that no command has; suggests the most similar one.
    """
    document = parse_options(read_text(path, "configuration file", regular=False), path)
    tables = {_table_name(name): name for name in commands}
    options = {option.key: option for option in options_of(command)}
    settings: dict[str, Setting] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            table = _known(key, key, tables, path, "table ", options)
            of_table = {option.key for option in options_of(tables[table])}
            for inner in value:
                _known(inner, f"{table}.{inner}", of_table, path, "key ")
        elif spelled(key) in options:
            _put(settings, options[spelled(key)], value, f"{path}, key {spelled(key)}")
        else:
            every = {option.key for name in tables.values() for option in options_of(name)}
            _known(key, key, every, path, "key ", tables)
    table = _table_name(command)
    for key, value in next((values for name, values in document.items() if spelled(name) == table), {}).items():
        _put(settings, options[spelled(key)], value, f"{path}, key {table}.{spelled(key)}")
    return settings


def _put(settings: dict[str, Setting], option: Option, value: Any, where: str) -> None:
    """Add a setting. One value of an option that accepts several is a list of one, as Typer expects it."""
    single = option.is_list and not isinstance(value, list)
    settings[option.field] = Setting([value] if single else value, where)


def _table_name(command: str) -> str:
    return command.replace(" ", "-")


def _known(name: str, label: str, choices: Iterable[str], path: Path, what: str, others: Iterable[str] = ()) -> str:
    """Return a name with dashes. Raises UsageError if it is not known."""
    name, names = spelled(name), list(choices)
    if name not in names:
        raise unknown_name("configuration", label, names, str(path), what, name, others)
    return name
