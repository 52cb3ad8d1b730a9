"""The settings of a call that come from its words and from the environment, by field of the configuration.

An option that has been renamed is still accepted under its former name, and a value under its former spelling. If both
names are given, the current one counts. `with_current_values` returns a warning for each former spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweet.cli.declaration import Declaration
from sweet.cli.environment import from_environment
from sweet.cli.options import Setting


def from_words(declaration: Declaration, values: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings among the values of `sweet.cli.parser.parse`."""
    found = {}
    for option in declaration.options:
        former = option.former
        if former is not None and (value := values[former.field]) is not None:
            found[option.field] = Setting(value, former.flag, is_flag=True, renamed_to=option.flag)
        if (value := values.get(option.field)) is not None:
            found[option.field] = Setting(value, option.flag, is_flag=True)
    return found


def from_environment_of(declaration: Declaration) -> dict[str, Setting]:
    """Return the settings from the variables of a command."""
    found = {}
    for option in declaration.flags:
        former = option.former
        if former is not None and (text := from_environment(former)) is not None:
            found[option.field] = Setting(text, former.envvar, renamed_to=option.envvar)
        if (text := from_environment(option)) is not None:
            found[option.field] = Setting(text, option.envvar)
    return found


def with_current_values(
    declaration: Declaration, settings: Mapping[str, Setting]
) -> tuple[dict[str, Setting], list[str]]:
    """Return the settings with renamed values replaced, and a warning for each former name or value."""
    current, warnings = dict(settings), []
    for option in declaration.options:
        setting = settings.get(option.field)
        if setting is None:
            continue
        if setting.renamed_to:
            warnings.append(f"{setting.where} is a former name; use {setting.renamed_to}.")
        if isinstance(setting.value, str) and (value := option.former_values.get(setting.value)) is not None:
            warnings.append(f"{setting.where}: {setting.value} is a former value; use {value}.")
            current[option.field] = replace(setting, value=value)
    return current, warnings
