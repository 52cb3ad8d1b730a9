"""Reads `--config FILE`: options from a TOML file that several commands share.

A table applies to the command with its name (`[train-critic]`; `[data-import]` for `sweet data import`), keys above the
tables to every command with such an option. Every command checks the whole file, so that a misspelt key is reported
before hours of work with a default instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweet.cli.declaration import OptionSpec
from sweet.cli.options import Setting
from sweet.toml_file import parse_toml, read_text, spelled, unknown_name


def table_name(command: str) -> str:
    return command.replace(" ", "-")


def read_config(path: Path, command: str, commands: Mapping[str, Sequence[OptionSpec]]) -> dict[str, Setting]:
    """Return the settings of one command, by field.

    Args:
        commands: the options of every command.

    Raises:
        InputError: no such file, or not TOML.
        UsageError: a table or key that no command has; suggests the most similar one.
    """
    document = parse_toml(read_text(path, "configuration file", path.read_bytes), path)
    tables = {table_name(name): specs for name, specs in commands.items()}
    every = [option for options in commands.values() for option in options]
    shared: dict[str, Any] = {}
    for name, value in document.items():
        if not isinstance(value, dict):
            shared[_known_key(name, name, every, path)] = value
        else:
            table = _known(spelled(name), name, tables, path, "table ")
            for key in value:
                _known_key(key, f"{name}.{key}", tables[table], path)
    own: dict[str, Any] = next((value for name, value in document.items() if spelled(name) == table_name(command)), {})
    found: dict[str, Setting] = {}
    for prefix, values in (("", shared), (f"{table_name(command)}.", own)):
        by_key = {spelled(key): value for key, value in values.items()}
        for spec in commands[command]:
            for key, renamed_to in ((spec.former_key, spec.key), (spec.key, "")):
                if key in by_key:
                    found[spec.field] = Setting(by_key[key], f"{path}, key {prefix}{key}", renamed_to=renamed_to)
    return found


def _known_key(key: str, shown: str, options: Iterable[OptionSpec], path: Path) -> str:
    """Return the key with dashes. Former keys are accepted, and not suggested."""
    name, options = spelled(key), list(options)
    if name not in {option.former_key for option in options} - {""}:
        _known(name, shown, {option.key for option in options}, path, "key ")
    return name


def _known(name: str, shown: str, allowed: Iterable[str], path: Path, what: str) -> str:
    allowed = list(allowed)
    if name not in allowed:
        raise unknown_name("configuration", shown, allowed, str(path), what, alike=name)
    return name
