"""The commands as data for programs, which `--help --json` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sweet.cli import console
from sweet.cli.help import positional, usage
from sweet.cli.spec import Spec
from sweet.installation import VERSION

_OF_OPTION = ("help", "metavar", "choices", "is_switch", "is_list", "bounds", "required", "operational", "topic")


def print_reference(commands: Iterable[Any]) -> int:
    """Print commands as one object. Of an option, what is empty or false is left out."""
    console.print_json({"version": VERSION, "commands": [_described(command) for command in commands]})
    return 0


def _described(command: Any) -> dict[str, Any]:
    spec: Spec = command.spec
    options = (
        {"flags": option.flags, "default": option.default, "variable": option.envvar}
        | {key: value for key in _OF_OPTION if (value := getattr(option, key))}
        for option in (*spec.flags, *spec.common)
    )
    arguments = ({"name": one.metavar, "help": one.help, "required": one.required} for one in positional(command))
    return {
        **{"command": f"sweet {spec.name}", "usage": usage(command), "summary": spec.summary, "text": spec.text},
        "examples": [{"command": line, "shows": what} for line, what in spec.examples],
        **{"arguments": list(arguments), "options": list(options)},
    }
