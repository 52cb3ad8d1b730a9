"""The program: a Typer application whose commands are imported when they are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from sweet import collector
from sweet.cli.completion import COMPLETE, complete
from sweet.cli.group import Group, load
from sweet.cli.options import HELP_ALL, SETTINGS

app = typer.Typer(
    name="sweet",
    cls=Group,
    context_settings=SETTINGS,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        from sweet.installation import VERSION

        typer.echo(f"sweet {VERSION}")
        raise typer.Exit


@app.callback()
def sweet(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """SWEET-RL and ColBench end to end (`sweet.cli.summaries.INTRODUCTION`)."""


def run(arguments: Sequence[str], program: typer.Typer = app) -> int:
    """Run the program once and return the exit code."""
    from sweet.cli.exits import asks_for_json, exit_code_of

    words = list(arguments)
    as_json = asks_for_json(words)
    command = get_command(program)

    def work() -> int:
        if as_json and {*SETTINGS["help_option_names"], HELP_ALL}.intersection(words):
            from sweet.cli.help import print_reference

            return print_reference(map(load, Group.begun_by(words)))
        try:
            with command.make_context("sweet", list(words)) as context:
                code: int = command.invoke(context)
                return code
        except typer.Exit as end:
            return end.exit_code
        except typer.TyperException as error:
            from sweet.cli.errors import usage_error

            raise usage_error(error) from None

    return exit_code_of(work, as_json=as_json)


def main() -> None:
    """The entry point of the `sweet` program."""
    if COMPLETE in os.environ:
        complete(lambda: get_command(app).main(prog_name="sweet"))
    with collector.paused():
        from sweet.cli.exits import exit_with
    exit_with(lambda: run(sys.argv[1:]))
