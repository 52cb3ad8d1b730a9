"""The program: every command in the order of the pipeline, and how a call ends.

Typer prints the help; an error of usage that it finds (an unknown option, a value that is no number) is drawn as the
same panel as every other error, with exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import typer
from typer.main import get_command

from sweet import __version__
from sweet.cli import console
from sweet.cli.command import HELP_NAMES, Command, CommandLine, help_where_nothing_is_asked
from sweet.errors import Interrupted, UsageError

MODULES = (
    "demo",
    "serve_sim",
    "rollout",
    "eval",
    "compare",
    "label",
    "train_critic",
    "rank",
    "pair",
    "train_actor",
    "view",
    "report",
    "status",
    "data",
    "doctor",
)
"""Modules of `sweet.cli.commands`, each with its `COMMANDS`."""

GROUPS = {"data": "Datasets and trajectories from elsewhere, and to elsewhere."}

INTRODUCTION = """SWEET-RL and ColBench end to end: collaborate, score, credit each turn, learn.

New here? [bold]sweet demo[/bold] runs the whole pipeline on this machine in a few minutes."""


def build(commands: Sequence[Command] | None = None) -> CommandLine:  # type: ignore[type-arg]
    """The command line, of all commands unless some are given."""
    app = typer.Typer(name="sweet", help=INTRODUCTION, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True, context_settings=HELP_NAMES)(_root)
    line = CommandLine(app, group_summaries=GROUPS)
    for command in all_commands() if commands is None else commands:
        line.add(command)
    return line


def all_commands() -> list[Command]:  # type: ignore[type-arg]
    return [command for name in MODULES for command in import_module(f"sweet.cli.commands.{name}").COMMANDS]


def _root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version.", show_default=False),
) -> None:
    if version:
        typer.echo(f"sweet {__version__}")
        raise typer.Exit
    help_where_nothing_is_asked(ctx)


def run(arguments: Sequence[str], line: CommandLine | None = None) -> int:
    """One call of the program; returns the exit code."""
    command = get_command((line or build()).app)
    try:
        code = command.main(args=list(arguments), prog_name="sweet", standalone_mode=False)
    except typer.TyperException as error:
        console.show_error(_usage_error(error))
        return UsageError.exit_code
    except typer.Abort:
        console.show_error(Interrupted("Stopped."))
        return Interrupted.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return code if isinstance(code, int) else 0


def _usage_error(error: typer.TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "sweet"
    return UsageError(error.format_message(), fix=f"{path} --help shows what is allowed")


def main() -> None:
    """The entry point of the `sweet` program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        console.silence_broken_pipe()
    sys.exit(code)
