"""The command line: parses into a frozen configuration, calls the stage, shows the result.

The only room that prints. It imports Typer and rich; a command's own module is imported when it is called, and
the heavy libraries by a stage when it runs.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of the `sweet` program."""
    try:
        from sweet.cli.app import main as program

        program()
    except KeyboardInterrupt:  # before there was anything to stop, or while it was being told
        raise SystemExit(130) from None
