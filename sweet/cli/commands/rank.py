"""`sweet rank`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sweet.cli import console
from sweet.cli.command import OptionalRun, command
from sweet.cli.spec import Call
from sweet.units import format_value, percent, plain_bounds

if TYPE_CHECKING:
    from sweet.ranking.config import RankConfig
    from sweet.stages.base import StageResult

app = typer.Typer(add_completion=False)


@command(
    app,
    "rank",
    examples=(
        ("sweet rank RUN --candidates 16 --fraction 0.1", "16 replies at a tenth of the turns"),
        (
            "sweet rank RUN --judge llm --judge-model MODEL --judge-url URL",
            "a language model instead of the critic",
        ),
        (
            "sweet rank RUN --replies candidates-1 --judge oracle",
            "the same replies, ranked by the tasks' own knowledge",
        ),
    ),
)
def rank(call: Call[RankConfig], run: OptionalRun = None) -> None:
    from sweet.cli.stage import run_stage

    run_stage(call, run, show=_show)


def _show(result: StageResult) -> None:
    metrics = result.as_json()["metrics"]
    console.show_result(result, hidden={"credit", "agreement_by_kind"})
    if "credit" in metrics:
        rows = [
            (
                kind,
                format_value(found["turns"]),
                format_value(found["replies"]),
                f"{found['mean_advantage']:+.3f} {plain_bounds(found['ci_low'], found['ci_high'])}".rstrip(),
            )
            for kind, found in metrics["credit"].items()
        ]
        console.heading("Mean advantage of each kind of reply that the tasks distinguish")
        console.show_rows(["reply", "turns", "replies", "mean advantage"], rows, right=["turns", "replies"])
    if "agreement_by_kind" in metrics:
        couples = [
            (name.replace(">", " over "), format_value(found["couples"]), percent(found["share"]))
            for name, found in metrics["agreement_by_kind"].items()
        ]
        console.heading("Share of couples in which the judge prefers the better reply")
        console.show_rows(["kinds", "couples", "share"], couples, right=["couples", "share"])
