"""`sweet bench`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweet.cli import console
from sweet.cli.command import command
from sweet.cli.spec import Call
from sweet.paths import RUNS

if TYPE_CHECKING:
    from sweet.study.settings import BenchConfig

Folder = Annotated[
    Path | None,
    typer.Argument(metavar="FOLDER", help="The study's folder, with a run for each seed; default: runs/bench-TASKS."),
]


@command(
    "bench",
    "sweet.study.settings:BenchConfig",
    examples=(
        ("sweet bench", "SWEET, the baselines and ablations over five seeds, hours"),
        ("sweet bench --tasks desk --methods rft,sweet --seeds 2", "other tasks, fewer methods and seeds"),
        ("sweet bench --methods sweet,mine.toml", "also the methods of a file"),
        ("sweet bench --submit study.json", "check a result from elsewhere, and add it"),
    ),
    text="All methods of a seed start from the same agent and learn from as many generated tokens; they are evaluated "
    "on the same unseen tasks. Writes study.json and report.html into the folder. Called again, it resumes.",
    is_stage=True,
    long_work=False,
)
def bench(call: Call[BenchConfig], folder: Folder = None) -> None:
    from sweet.cli.loops import finish_study
    from sweet.study.settings import methods_of
    from sweet.study.study import run_study
    from sweet.study.submission import add_submission

    if call.common.dry_run:
        methods_of(call.config.methods)
        console.print_json(call.config.model_dump(mode="json"))
        return
    call.run = place = folder or RUNS / f"bench-{call.config.tasks}"
    submitted = call.config.submit
    work = run_study if submitted is None else partial(add_submission, submitted)
    finish_study(call, lambda: work(place, call.config.study(), call.reporter))
