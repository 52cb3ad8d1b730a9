"""`sweet demo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from sweet.cli import console
from sweet.cli.stage_command import StageCommand
from sweet.stages.base import StageResult
from sweet.stages.demo import DemoConfig, run_demo

FIGURES = ("success", "tests")


def _name(_: DemoConfig) -> tuple[str, str]:
    return "code", "demo"


def _show(result: StageResult) -> None:
    metrics = result.metrics
    console.heading(f"sweet demo · {result.run}")
    seconds = Table("stage", "seconds")
    seconds.columns[1].justify = "right"
    for step, took in metrics["steps"].items():
        seconds.add_row(console.inert(step), f"{took:.1f}")
    seconds.add_section()
    seconds.add_row("all", f"{metrics['seconds']:.1f}")
    console.show(seconds)
    outcome = Table(f"{metrics['tasks']} unseen tasks", "success", "tests passed")
    outcome.add_row("before", *(_rate(metrics, f"{figure}_before") for figure in FIGURES))
    for one in metrics["rounds"]:
        name = "after" if len(metrics["rounds"]) == 1 else f"after round {one['round']}"
        outcome.add_row(name, *(_rate(one, figure) for figure in FIGURES))
    console.show(outcome)


def _rate(metrics: Mapping[str, Any], name: str) -> str:
    rate, low, high = (100 * metrics[f"{name}{end}"] for end in ("", "_ci_low", "_ci_high"))
    return f"{rate:.1f} % [{low:.1f}, {high:.1f}]"


COMMANDS = (
    StageCommand(
        name="demo",
        config=DemoConfig,
        stage=run_demo,
        name_run=_name,
        show=_show,
        summary="Run the whole pipeline on this machine, on the packaged agent and tasks.",
        text="Evaluates the agent, collects dialogues, scores and labels them, trains the critic, ranks candidates, "
        "pairs them, trains the actor, and evaluates it on the same unseen tasks. Nothing is downloaded. With --rounds "
        "the actor then learns from its own dialogues.",
        examples=(
            ("sweet demo", "a few minutes on two CPU cores"),
            ("sweet demo --rounds 3 --critic retrained", "each actor's dialogues train the next critic and actor"),
        ),
        then=("sweet view {run}", "sweet report {run}"),
    ),
)
