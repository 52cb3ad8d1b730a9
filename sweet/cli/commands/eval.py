"""`sweet eval`."""

from __future__ import annotations

from sweet.cli import console
from sweet.cli.commands.compare import show_comparison
from sweet.cli.stage_command import StageCommand
from sweet.scoring.config import EvalConfig
from sweet.scoring.plan import plan_eval
from sweet.scoring.results.trained_on import in_words
from sweet.scoring.stage import run_eval
from sweet.stages.base import StageResult
from sweet.view.comparison import MEASURES, humans, samples


def _show(result: StageResult) -> None:
    metrics = result.as_json()["metrics"]
    console.show(console.safe_text(in_words(metrics["trained_on_tasks"], metrics["tasks"])))
    console.show_result(result, hidden={"compare", "best_of", "trained_on_tasks", "humans", *MEASURES})
    for section in [*humans(metrics), *samples(metrics)]:
        console.show(section)
    if "compare" in metrics:
        show_comparison(metrics["compare"])


COMMANDS = (
    StageCommand(
        name="eval",
        config=EvalConfig,
        stage=run_eval,
        plan=plan_eval,
        show=_show,
        summary="Score the newest dialogues: code by its hidden tests, pages by their similarity to the reference.",
        text="Code runs in a sandbox, pages in headless browsers (sweet doctor shows those of this machine).",
        examples=(
            ("sweet eval", "score the newest run"),
            ("sweet eval RUN --compare BASELINE", "also compare it with another run on the same tasks"),
            ("sweet eval RUN --compare RUN:scores-1", "compare after with before training, in one run"),
            ("sweet eval RUN --similarity clip", "pages by CLIP ViT-B/32, as in the paper"),
            ("sweet eval RUN --scorer upstream", "as the published code scores, to compare with its results"),
            ("sweet eval RUN --scorer both", "both scorers"),
            ("sweet eval RUN --best-of-by critic", "how well the critic selects the best dialogue of a task"),
        ),
    ),
)
