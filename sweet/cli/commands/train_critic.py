"""`sweet train-critic`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.training.config import TrainCriticConfig

app = typer.Typer(add_completion=False)


@command(
    app,
    "train-critic",
    examples=(
        ("sweet train-critic RUN", "start from the model that played the dialogues"),
        ("sweet train-critic RUN --dry-run", "show the planned computation and its memory"),
        ("sweet train-critic RUN --resume", "resume after an interruption"),
        ("sweet train-critic RUN --engine deepspeed", "on all GPUs of this machine"),
    ),
)
def train_critic(call: Call[TrainCriticConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    run_stage(call, run)
