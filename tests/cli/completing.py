"""The candidates that Typer offers a shell, in this process."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout, suppress
from unittest import mock

from typer.main import get_command

from sweet.cli.app import app
from sweet.cli.completion import COMPLETE


def offered(*words: str) -> list[str]:
    """Return the candidates for the last word after `sweet`."""
    environment = {COMPLETE: "complete_bash", "COMP_WORDS": "\n".join(["sweet", *words]), "COMP_CWORD": str(len(words))}
    printed = io.StringIO()
    with mock.patch.dict(os.environ, environment), redirect_stdout(printed), suppress(SystemExit):
        get_command(app).main(prog_name="sweet")
    return printed.getvalue().split()
