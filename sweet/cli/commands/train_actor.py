"""`sweet train-actor`."""

from __future__ import annotations

from sweet.cli.stage_command import StageCommand
from sweet.training.config import TrainActorConfig
from sweet.training.stage import plan_train_actor, run_train_actor

COMMANDS = (
    StageCommand(
        name="train-actor",
        config=TrainActorConfig,
        stage=run_train_actor,
        plan=plan_train_actor,
        summary="Train the agent on the pairs.",
        text="The trained actor is a Hugging Face model directory: sweet rollout --agent DIR plays it.",
        examples=(
            ("sweet train-actor RUN", "step-level DPO on the pairs of sweet pair"),
            ("sweet train-actor RUN --method rft", "the baseline: fine-tuning on the solved dialogues"),
            ("sweet train-actor RUN --push me/agent", "and push the model with its card to the model hub"),
            ("sweet train-actor RUN --method sft --model DIR", "a warm-up on all dialogues, such as imported ones"),
        ),
    ),
)
