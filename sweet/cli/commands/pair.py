"""`sweet pair`."""

from __future__ import annotations

from sweet.cli.stage_command import StageCommand
from sweet.preferences.config import PairConfig
from sweet.preferences.pair import plan_pair, run_pair

COMMANDS = (
    StageCommand(
        name="pair",
        config=PairConfig,
        stage=run_pair,
        plan=plan_pair,
        summary="Make step-level pairs, chosen and rejected, from the ranked candidates.",
        examples=(("sweet pair RUN --pairs 4", "four pairs for each turn"),),
    ),
)
