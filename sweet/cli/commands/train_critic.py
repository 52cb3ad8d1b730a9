"""`sweet train-critic`."""

from __future__ import annotations

from sweet.cli.stage_command import StageCommand
from sweet.training.config import TrainCriticConfig
from sweet.training.stage import plan_train_critic, run_train_critic

COMMANDS = (
    StageCommand(
        name="train-critic",
        config=TrainCriticConfig,
        stage=run_train_critic,
        plan=plan_train_critic,
        summary="Train the critic, which assigns credit to each turn, on the preferences.",
        examples=(
            ("sweet train-critic RUN", "start from the model that played the dialogues"),
            ("sweet train-critic RUN --dry-run", "show the planned computation and its memory"),
            ("sweet train-critic RUN --resume", "resume after an interruption"),
            ("sweet train-critic RUN --engine deepspeed", "on all GPUs of this machine"),
        ),
    ),
)
