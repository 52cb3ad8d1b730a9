"""`sweet demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.study.settings import DemoConfig


@command(
    "demo",
    "sweet.study.settings:DemoConfig",
    examples=(
        ("sweet demo", "a few minutes on two CPU cores"),
        ("sweet demo --rounds 3", "each actor's dialogues train the next critic and actor"),
    ),
    text="Evaluates the agent, collects dialogues, scores and labels them, trains the critic, ranks candidates, "
    "pairs them, trains the actor, and evaluates it on the same unseen tasks. Nothing is downloaded. With "
    "--rounds the actor then learns from its own dialogues.",
    is_stage=True,
)
def demo(call: Call[DemoConfig], run: NewRun = None) -> None:
    from sweet.cli.loops import show_rounds
    from sweet.cli.stage import run_stage
    from sweet.study.demo import run_demo

    next_commands = ("sweet view {run}", "sweet report {run}")
    run_stage(call, run, work=run_demo, new_run=("code", "demo"), show=show_rounds, next_commands=next_commands)
