"""`sweet eval`."""

from __future__ import annotations

from sweet.cli.stage_command import StageCommand
from sweet.stages.evaluate import EvalConfig, run_eval

COMMANDS = (
    StageCommand(
        name="eval",
        config=EvalConfig,
        stage=run_eval,
        summary="Score the newest dialogues: code by its hidden tests, pages by their likeness to the reference.",
        text="Code runs in a sandbox, pages in headless browsers (sweet doctor says what this machine has).",
        examples=(
            ("sweet eval", "score the newest run"),
            ("sweet eval RUN --compare OTHER", "the difference to another run on the same tasks, and the win rate"),
            ("sweet eval RUN --similarity clip", "pages by CLIP ViT-B/32, as the paper does"),
            ("sweet eval RUN --scorer upstream", "as the published code scores, to compare with its numbers"),
            ("sweet eval RUN --scorer both", "the two side by side"),
            ("sweet eval RUN --best-of critic", "how well the critic tells the better dialogues of a task"),
        ),
    ),
)
