"""The program: its commands, and the way from its words to one of them.

Help, `--version` and completion need neither Typer nor a command's own module; a call imports both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sweet.cli import index
from sweet.cli.declaration import HELP, HELP_ALL, Declaration
from sweet.cli.registry import Registry
from sweet.cli.unknown import unknown_command, unknown_option

if TYPE_CHECKING:
    from sweet.cli.command import Command

MODULES = {
    "Start here": ("demo", "train"),
    "The pipeline, in order": (
        "serve_sim",
        "rollout",
        "play",
        "eval",
        "label",
        "train_critic",
        "rank",
        "pair",
        "train_actor",
        "train_online",
    ),
    "Results": ("view", "compare", "report", "status", "control"),
    "Data and machine": ("data", "doctor"),
}
"""Modules of `sweet.cli.commands`, by the title under which the help lists their `COMMANDS`. A module has the name of
the first word of its commands."""

GROUPS = {"data": "Check, download, import and export datasets and dialogues."}

INTRODUCTION = """SWEET-RL and ColBench end to end: collaborate, score, credit each turn, learn.

Commands write into a run, a directory under runs/; each command continues with the newest run by default."""

EXAMPLES = (
    ("sweet demo", "the whole pipeline on this machine, in a few minutes"),
    ("sweet status", "the contents of a run, and the next command"),
)

COMPLETE = "_SWEET_COMPLETE"
"""The variable in which a shell asks for completions, or for its completion file."""


def build(commands: Sequence[Command[Any]] | None = None) -> Registry:
    """Return the registry of the program's commands, or of the given ones."""
    if commands is not None:
        by_name = {command.name: command for command in commands}
        summaries = {name: command.summary for name, command in by_name.items()}
        return Registry({"Commands": list(by_name)}, summaries, by_name.__getitem__)
    panels = {title: [name.replace("_", "-") for name in names] for title, names in MODULES.items()}
    return Registry(
        panels, index.summaries(), load, index.declaration, GROUPS, introduction=INTRODUCTION, examples=EXAMPLES
    )


def load(name: str) -> Command[Any]:
    """Return the command with a name, importing no other command. Raises KeyError if there is none."""
    module = import_module(f"sweet.cli.commands.{name.split()[0].replace('-', '_')}")
    found: dict[str, Command[Any]] = {command.name: command for command in module.COMMANDS}
    return found[name]


def declarations() -> list[Declaration]:
    """Return the declaration of every command, made from the commands themselves."""
    from sweet.cli.command import declare

    modules = [import_module(f"sweet.cli.commands.{name}") for names in MODULES.values() for name in names]
    return [declare(command) for module in modules for command in module.COMMANDS]


def run(arguments: Sequence[str], registry: Registry | None = None) -> int:
    """Run the program once and return the exit code."""
    from sweet.cli.exits import asks_for_json, exit_code_of  # completion draws nothing

    words = list(arguments)
    return exit_code_of(lambda: _dispatch(registry or build(), words), as_json=asks_for_json(words))


def _dispatch(registry: Registry, words: Sequence[str], group: str | None = None) -> int:
    """Run the command that the words name, or show the help that they ask for."""
    path = "sweet" if group is None else f"sweet {group}"
    word, rest = (words[0], words[1:]) if words else (HELP[0], [])
    if word in (*HELP, HELP_ALL):
        return _show(_help(registry, group))
    if word.startswith("-"):
        if group is None and word == "--version":
            from sweet.installation import VERSION

            return _show(f"sweet {VERSION}")
        raise unknown_option(path, word, ["--help", *(["--version"] if group is None else [])])
    if group is None and word in registry.groups:
        return _dispatch(registry, rest, group=word)
    if group is None and word not in registry.members(None):
        raise unknown_command(path, word, registry.members(None))
    asked = [other for other in takewhile(lambda other: other != "--", rest) if other in (*HELP, HELP_ALL)]
    try:
        declaration = registry.declaration(word if group is None else f"{group} {word}", from_index=bool(asked))
    except KeyError:
        raise unknown_command(path, word, registry.members(group)) from None
    if asked:
        from sweet.cli import help

        return _show(help.command_help(declaration, complete=HELP_ALL in asked))
    from sweet.cli.calls import call

    return call(registry, declaration, rest)


def _help(registry: Registry, group: str | None) -> str:
    from sweet.cli import help

    members = registry.members(group)
    if group is not None:
        return help.group_help(group, registry.groups[group], members.items())
    panels = {title: [(word, members[word]) for word in words] for title, words in registry.panels.items()}
    return help.program_help(registry.introduction, registry.examples, panels)


def _show(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def main() -> None:
    """The entry point of the `sweet` program."""
    if instruction := os.environ.get(COMPLETE):
        from sweet.cli.completion import answer

        answer(instruction, build())
        return
    from sweet.cli.signals import exit_with

    exit_with(lambda: run(sys.argv[1:]))
