"""`sweet train-online`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

from sweet.cli import console
from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.online.config import TrainOnlineConfig

app = typer.Typer(add_completion=False)


@command(
    app,
    "train-online",
    examples=(
        ("sweet train-online RUN --algorithm grpo --steps 50", "GRPO on the rewards of a task's dialogues"),
        ("sweet train-online RUN --generated-tokens 200000", "end when so many tokens have been written"),
        ("sweet train-online RUN --stop-on-collapse", "end when it collapses, and keep the best actor"),
    ),
    text="Each step plays some tasks with the newest weights, scores the dialogues, learns from them by a credit "
    "rule, and gives the new weights to the running sampler. Dialogues, scores and a checkpoint are written "
    "meanwhile, so that nothing is lost by a crash: --resume goes on.",
)
def train_online(call: Call[TrainOnlineConfig], run: NewRun = None) -> None:
    from sweet.cli.stage import run_stage

    new_run = (call.config.task, f"online-{call.config.algorithm}")
    run_stage(call, run, new_run=new_run, show=partial(console.show_result, hidden=("curve",)))
