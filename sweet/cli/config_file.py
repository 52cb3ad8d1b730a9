"""Reads `--config FILE`: options from a TOML file that several commands share.

A table applies to the command with its name (`[train-critic]`; `[data-import]` for `sweet data import`), keys above the
tables to every command with such an option. Every command checks the whole file, so that a misspelt key is reported
before hours of work with a default instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweet.cli.declaration import OptionSpec
from sweet.cli.options import Setting
from sweet.errors import InputError, UsageError
from sweet.suggestions import nearest


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
    document = _load(path)
    tables = {table_name(name): specs for name, specs in commands.items()}
    every = [option for options in commands.values() for option in options]
    shared: dict[str, Any] = {}
    for name, value in document.items():
        if not isinstance(value, dict):
            shared[_known_key(name, name, every, path)] = value
        else:
            table = _known(_kebab(name), name, tables, path, "table ")
            for key in value:
                _known_key(key, f"{name}.{key}", tables[table], path)
    own: dict[str, Any] = next((value for name, value in document.items() if _kebab(name) == table_name(command)), {})
    found: dict[str, Setting] = {}
    for prefix, values in (("", shared), (f"{table_name(command)}.", own)):
        by_key = {_kebab(key): value for key, value in values.items()}
        for spec in commands[command]:
            for key, renamed_to in ((spec.former_key, spec.key), (spec.key, "")):
                if key in by_key:
                    found[spec.field] = Setting(by_key[key], f"{path}, key {prefix}{key}", renamed_to=renamed_to)
    return found


def _kebab(name: str) -> str:
    return name.replace("_", "-").rstrip("-")


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("There is no such configuration file.", path=path) from None
    except OSError as error:
        raise InputError(f"The configuration file cannot be read: {error.strerror}.", path=path) from error
    except UnicodeDecodeError as error:
        raise InputError("The configuration file is not UTF-8 text.", path=path) from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise InputError(f"This is not TOML: {error}.", path=path, line=int(line[1]) if line else None) from error


def _known_key(key: str, shown: str, options: Iterable[OptionSpec], path: Path) -> str:
    """Return the key with dashes. Former keys are accepted, and not suggested."""
    name, options = _kebab(key), list(options)
    if name not in {option.former_key for option in options} - {""}:
        _known(name, shown, {option.key for option in options}, path, "")
    return name


def _known(name: str, shown: str, allowed: Iterable[str], path: Path, what: str) -> str:
    allowed = sorted(allowed)
    if name in allowed:
        return name
    suggestion = nearest(name, allowed)
    raise UsageError(
        f"The configuration has an unknown {what or 'key '}{shown!r}."
        + (f" Did you mean {suggestion}?" if suggestion else ""),
        where=f"{path}, {what or 'key '}{shown}",
        fix=f"write {suggestion}" if suggestion else f"known here: {', '.join(allowed)}",
    )
