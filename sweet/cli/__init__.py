"""The command line: parses words into a frozen configuration, calls the stage, shows the result.

Only this package prints. The module of a command is imported when the command is called, and heavy libraries when its
stage runs.
"""

from __future__ import annotations

from sweet import collector


def main() -> None:
    """The entry point of the `sweet` program."""
    try:
        with collector.paused():
            from sweet.cli.app import main as program
        program()
    except KeyboardInterrupt:  # during start-up, or while the error was being shown
        raise SystemExit(130) from None
