"""The program: which commands there are, and how a call of it ends."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from sweet.cli import index
from sweet.cli.declaration import Declaration
from sweet.cli.parser import CommandLine, Group, unknown_option
from sweet.cli.typer_internals import NoSuchOption
from sweet.errors import UsageError

if TYPE_CHECKING:
    from sweet.cli.command import Command

MODULES = {
    "Start here": ("demo",),
    "The pipeline, in order": (
        "serve_sim",
        "rollout",
        "eval",
        "label",
        "train_critic",
        "rank",
        "pair",
        "train_actor",
    ),
    "Look at what came out": ("view", "compare", "report", "status"),
    "Data and machine": ("data", "doctor"),
}
"""Modules of `sweet.cli.commands`, each with its `COMMANDS`, by the title under which the help lists them. A module is
named after the first word of its commands."""

GROUPS = {"data": "Datasets and trajectories from elsewhere, and to elsewhere."}

INTRODUCTION = """SWEET-RL and ColBench end to end: collaborate, score, credit each turn, learn.

What a command makes lies in a run, a directory under runs/; the next command goes on with the newest."""

EXAMPLES = (
    ("sweet demo", "new here? the whole pipeline on this machine, in a few minutes"),
    ("sweet status", "what a run holds, and what to do next"),
)

COMPLETE = "_SWEET_COMPLETE"
"""The variable by which a shell asks for completions, or for the file that makes it ask."""


def build(commands: Sequence[Command[Any]] | None = None) -> CommandLine:
    """The command line, of all commands unless some are given."""
    if commands is not None:
        by_name = {command.name: command for command in commands}
        summaries = {name: command.summary for name, command in by_name.items()}
        return CommandLine({"Commands": list(by_name)}, summaries, by_name.__getitem__)
    panels = {title: [name.replace("_", "-") for name in names] for title, names in MODULES.items()}
    return CommandLine(
        panels, index.summaries(), load, index.declaration, GROUPS, introduction=INTRODUCTION, examples=EXAMPLES
    )


def load(name: str) -> Command[Any]:
    """The command of a name, and of all modules only its own. KeyError where there is none."""
    module = import_module(f"sweet.cli.commands.{name.split()[0].replace('-', '_')}")
    found: dict[str, Command[Any]] = {command.name: command for command in module.COMMANDS}
    return found[name]


def declarations() -> list[Declaration]:
    """What every command says of itself, from the commands themselves."""
    from sweet.cli.command import declare

    modules = [import_module(f"sweet.cli.commands.{name}") for names in MODULES.values() for name in names]
    return [declare(command) for module in modules for command in module.COMMANDS]


def run(arguments: Sequence[str], line: CommandLine | None = None) -> int:
    """One call of the program; returns the exit code."""
    from sweet.cli.exits import ended  # completion draws nothing

    before_tail = itertools.takewhile(lambda word: word != "--", arguments)
    program = Group.of(line or build(), looking=not {"-h", "--help"}.isdisjoint(before_tail))
    return ended(lambda: _invoke(program, list(arguments)))


def _invoke(program: Group, arguments: list[str]) -> int:
    try:
        with program.make_context("sweet", arguments) as context:
            code = program.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except NoSuchOption as error:
        raise unknown_option(error) from None
    except typer.TyperException as error:
        raise _usage_error(error) from None
    return code if isinstance(code, int) else 0


def _usage_error(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "sweet"
    return UsageError(error.format_message(), fix=f"{path} --help shows what is allowed")


def main() -> None:
    """The entry point of the `sweet` program."""
    if instruction := os.environ.get(COMPLETE):
        from sweet.cli.completion import answer

        answer(instruction, Group.of(build(), looking=True))
        return
    from sweet.cli.signals import end_with

    end_with(lambda: run(sys.argv[1:]))
