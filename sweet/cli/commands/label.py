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
        summary="Pair better with worse dialogues of the same task.",
        text="These preferences, with the reference solution in sight, are what the critic learns from.",
        examples=(("sweet label RUN", "pair what sweet eval scored"),),
    ),
)
