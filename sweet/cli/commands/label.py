"""`sweet label`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.preferences.config import LabelConfig

app = typer.Typer(add_completion=False)


@command(
    app,
    "label",
    examples=(("sweet label RUN", "pair the dialogues that sweet eval scored"),),
    text="The critic is trained on these preferences, with access to the reference solution.",
)
def label(call: Call[LabelConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    run_stage(call, run)
