"""`sweet control`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweet.cli import console
from sweet.cli.command import command
from sweet.cli.completion import complete_run, safely
from sweet.cli.spec import Call

if TYPE_CHECKING:
    from sweet.inspection.controlling import ControlConfig

ACTIONS = ("pause", "resume", "concurrency", "stop")


@command(
    "control",
    "sweet.inspection.controlling:ControlConfig",
    examples=(
        ("sweet control RUN pause", "nothing new is started until sweet control RUN resume"),
        ("sweet control RUN concurrency 400", "at most 400 dialogues at once from now on"),
        ("sweet control RUN stop", "as Ctrl-C: finished work is kept"),
    ),
    text="pause starts nothing new and lets what is under way finish: rollout, rank, eval, and a training in one "
    "process. concurrency N sets how many dialogues are played at once. stop is Ctrl-C.",
)
def control(
    call: Call[ControlConfig],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.", autocompletion=complete_run)],
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND",
            help="pause, resume, concurrency or stop.",
            autocompletion=safely(lambda _, __: ACTIONS),
        ),
    ],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE",
            help="The number of dialogues at once (concurrency).",
        ),
    ] = None,
) -> None:
    from sweet.inspection import controlling
    from sweet.runs.run import Run

    opened = Run.open(run)
    metrics = controlling.control(opened, command, value, call.config)
    if call.common.json:
        console.print_json({"stage": "control", "run": str(opened.path), "metrics": metrics.as_json(), "artifacts": []})
    else:
        unanswered = f"{metrics.attempt} has not answered within {call.config.wait:g} s; it will, when it looks next."
        console.show(console.safe_text(unanswered if metrics.answer is None else metrics.answer))
