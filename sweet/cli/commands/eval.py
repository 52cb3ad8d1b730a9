"""`sweet eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli import console
from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.scoring.config import EvalConfig
    from sweet.stages.base import StageResult

app = typer.Typer(add_completion=False)


@command(
    app,
    "eval",
    examples=(
        ("sweet eval", "score the newest run"),
        ("sweet eval RUN --compare BASELINE", "also compare it with another run on the same tasks"),
        ("sweet eval RUN --compare RUN:scores-1", "compare after with before training, in one run"),
        ("sweet eval RUN --similarity clip", "pages by CLIP ViT-B/32, as in the paper"),
        ("sweet eval RUN --scorer upstream", "as the published code scores, to compare with its results"),
        ("sweet eval RUN --scorer both", "both scorers"),
        ("sweet eval RUN --best-of-by critic", "how well the critic selects the best dialogue of a task"),
    ),
    text="Code runs in a sandbox, pages in headless browsers (sweet doctor shows those of this machine).",
)
def evaluate(call: Call[EvalConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    run_stage(call, run, show=_show)


def _show(result: StageResult) -> None:
    from sweet.cli.commands.compare import show_comparison
    from sweet.scoring.results.trained_on import in_words
    from sweet.view.comparison import MEASURES, humans, samples

    metrics = result.as_json()["metrics"]
    console.show(console.safe_text(in_words(metrics["trained_on_tasks"], metrics["tasks"])))
    console.show_result(result, hidden={"compare", "best_of", "trained_on_tasks", "humans", *MEASURES})
    for section in [*humans(metrics), *samples(metrics)]:
        console.show(section)
    if "compare" in metrics:
        show_comparison(metrics["compare"])
