"""`sweet compare`, and the output of `sweet eval --compare`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweet.cli import console
from sweet.cli.command import command
from sweet.cli.completion import complete_comparable
from sweet.cli.spec import Call
from sweet.errors import UsageError

if TYPE_CHECKING:
    from sweet.scoring.results.compare import CompareConfig


@command(
    "compare",
    "sweet.scoring.results.compare:CompareConfig",
    examples=(
        ("sweet compare runs/before runs/after", "the results of both"),
        ("sweet compare RUN:scores-1 RUN:scores-3", "before and after training, in one run"),
        ("sweet compare A B --markdown", "a table for a pull request"),
        ("sweet compare A B --repeat-run OTHER", "the variation between seeds; OTHER was played with another"),
    ),
    text="Every difference is B - A. Nothing is written into either run. Two evaluations in one run are named by "
    "their artifacts: RUN:scores-1 RUN:scores-3.",
)
def compare(
    call: Call[CompareConfig],
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="The baseline: a run (its result), RUN:scores-2 or RUN:rollouts-1.",
            autocompletion=complete_comparable,
        ),
    ],
    b: Annotated[
        Path,
        typer.Argument(
            metavar="B",
            help="The run or artifact to compare with it, in the same form.",
            autocompletion=complete_comparable,
        ),
    ],
) -> None:
    from sweet.scoring.results.compare import run_compare
    from sweet.view.comparison import as_markdown

    if call.config.markdown and call.common.json:
        raise UsageError("Markdown and JSON cannot both go to stdout.", where="--markdown", fix="omit one")
    result = run_compare(a, b, call.config)
    metrics = result.as_json()["metrics"]
    if call.config.markdown:
        sys.stdout.write(as_markdown(metrics))
    else:
        console.print_result(result, as_json=call.common.json, draw=lambda _: show_comparison(metrics))
    if (line := view_command(metrics)) is not None:
        call.reporter.say(f"next: {line}")


def show_comparison(metrics: Mapping[str, Any]) -> None:
    from sweet.view.comparison import sections, trained_on

    console.show(trained_on(metrics), *sections(metrics))


def view_command(metrics: Mapping[str, Any]) -> str | None:
    """Return the command that shows the flipped tasks on both sides; None without any, or without dialogues."""
    of_a, of_b, flips = metrics["a"], metrics["b"], metrics["flips"]
    flipped = flips["lost"]["tasks"] or flips["gained"]["tasks"]
    if not flipped or of_a["rollouts"] is None or of_b["rollouts"] is None:
        return None
    other = of_b["rollouts"] if of_a["run"] == of_b["run"] else f"{of_b['run']}:{of_b['rollouts']}"
    words = ["sweet", "view", of_a["run"], "--from", of_a["rollouts"], "--against", other, "--filter", "change=differs"]
    return shlex.join(words)
