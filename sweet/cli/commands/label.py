"""`sweet label`."""

from __future__ import annotations

from sweet.cli.stage_command import StageCommand
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import plan_label, run_label

COMMANDS = (
    StageCommand(
        name="label",
        config=LabelConfig,
        stage=run_label,
        plan=plan_label,
        summary="Pair better and worse dialogues of the same task.",
        text="The critic is trained on these preferences, with access to the reference solution.",
        examples=(("sweet label RUN", "pair the dialogues that sweet eval scored"),),
    ),
)
