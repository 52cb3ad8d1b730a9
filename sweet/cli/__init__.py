"""The command line: parses into a frozen configuration, calls the stage, shows the result.

The only room that prints. It imports Typer, rich and the configurations of the stages, none of the heavy libraries:
those are imported by a stage when it runs.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of the `sweet` program."""
    from sweet.cli.app import main as program

    program()
