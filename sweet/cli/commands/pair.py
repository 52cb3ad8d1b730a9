"""`sweet pair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.preferences.config import PairConfig

app = typer.Typer(add_completion=False)


@command(
    app,
    "pair",
    examples=(("sweet pair RUN --pairs 4", "four pairs for each turn"),),
)
def pair(call: Call[PairConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    run_stage(call, run)
