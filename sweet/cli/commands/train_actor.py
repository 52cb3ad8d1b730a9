"""`sweet train-actor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.training.config import TrainActorConfig

app = typer.Typer(add_completion=False)


@command(
    app,
    "train-actor",
    examples=(
        ("sweet train-actor RUN", "step-level DPO on the pairs of sweet pair"),
        ("sweet train-actor RUN --method rft", "the baseline: fine-tuning on the solved dialogues"),
        ("sweet train-actor RUN --push me/agent", "and push the model with its card to the model hub"),
        ("sweet train-actor RUN --method sft --model DIR", "a warm-up on all dialogues, such as imported ones"),
    ),
    text="The trained actor is a Hugging Face model directory: sweet rollout --agent DIR plays it.",
)
def train_actor(call: Call[TrainActorConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    run_stage(call, run)
