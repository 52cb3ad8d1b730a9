"""`sweet train-online`."""

from __future__ import annotations

from functools import partial

from sweet.cli import console
from sweet.cli.stage_command import StageCommand
from sweet.online.config import TrainOnlineConfig
from sweet.online.stage import plan_train_online, run_train_online

COMMANDS = (
    StageCommand(
        name="train-online",
        config=TrainOnlineConfig,
        stage=run_train_online,
        plan=plan_train_online,
        show=partial(console.show_result, hidden=("curve",)),
        name_run=lambda config: (config.task, f"online-{config.algorithm}"),
        summary="Train the agent online: play, score and learn in many small steps.",
        text="Each step plays some tasks with the newest weights, scores the dialogues, learns from them by a credit "
        "rule, and gives the new weights to the running sampler. Dialogues, scores and a checkpoint are written "
        "meanwhile, so that nothing is lost by a crash: --resume goes on.",
        examples=(
            ("sweet train-online RUN --algorithm grpo --steps 50", "GRPO on the rewards of a task's dialogues"),
            ("sweet train-online RUN --generated-tokens 200000", "end when so many tokens have been written"),
            ("sweet train-online RUN --stop-on-collapse", "end when it collapses, and keep the best actor"),
        ),
    ),
)
