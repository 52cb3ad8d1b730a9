"""`sweet rank`."""

from __future__ import annotations

from sweet.cli.stage_command import StageCommand
from sweet.stages.rank import RankConfig, run_rank

COMMANDS = (
    StageCommand(
        name="rank",
        config=RankConfig,
        stage=run_rank,
        summary="Sample candidate replies at turns and let the critic, or another judge, rank them.",
        examples=(
            ("sweet rank RUN --candidates 16 --fraction 0.1", "16 replies at a tenth of the turns"),
            (
                "sweet rank RUN --judge llm --judge-model MODEL --judge-url URL",
                "a language model in the critic's place",
            ),
            ("sweet rank RUN --replies candidates-1 --judge oracle", "the same replies by the tasks' own knowledge"),
        ),
    ),
)
