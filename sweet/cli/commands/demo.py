"""`sweet demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from sweet.cli import console
from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call
from sweet.errors import UsageError
from sweet.paths import RUNS
from sweet.units import count, format_duration

if TYPE_CHECKING:
    from sweet.stages.base import StageResult
    from sweet.study.demo_options import DemoOptions
    from sweet.study.settings import StudyConfig

FIGURES = ("success", "tests")

STUDY = RUNS / "study"
"""The default folder of a study. It is fixed, so that the same command resumes the study."""

app = typer.Typer(add_completion=False)


@command(
    app,
    "demo",
    "sweet.study.demo_options:DemoOptions",
    examples=(
        ("sweet demo", "a few minutes on two CPU cores"),
        ("sweet demo --rounds 3", "each actor's dialogues train the next critic and actor"),
        ("sweet demo --study", "SWEET, the baselines and ablations over five seeds, one to two hours"),
        ("sweet demo --study --methods rft,sweet --seeds 2", "fewer methods and seeds"),
    ),
    text="Evaluates the agent, collects dialogues, scores and labels them, trains the critic, ranks candidates, "
    "pairs them, trains the actor, and evaluates it on the same unseen tasks. Nothing is downloaded. With "
    "--rounds the actor then learns from its own dialogues. With --study the methods are compared over several "
    "seeds, with as many tokens generated for each.",
    is_stage=True,
)
def demo(call: Call[DemoOptions], run: NewRun = None) -> None:
    from sweet.cli.stage import run_stage
    from sweet.stages.base import option_key
    from sweet.study.demo import DemoConfig, run_demo
    from sweet.study.settings import StudyConfig

    if call.common.dry_run:
        run_stage(call, run, work=run_demo, new_run=("code", "demo"))
        return
    given = call.config.model_fields_set - {"study"}
    valid, fix = (StudyConfig, "omit --study") if call.config.study else (DemoConfig, "add --study")
    if foreign := sorted(given - valid.model_fields.keys()):
        flag = f"--{option_key(foreign[0])}"
        how = "with" if call.config.study else "without"
        raise UsageError(f"{flag} has no effect on a demo {how} --study.", where=flag, fix=f"omit it, or {fix}")
    if not call.config.study:
        next_commands = ("sweet view {run}", "sweet report {run}")
        run_stage(call, run, work=run_demo, new_run=("code", "demo"), show=_show, next_commands=next_commands)
    elif call.common.detach:
        raise UsageError("A study does not detach.", where="--detach", fix="nohup sweet demo --study &")
    else:
        _study(call, run or STUDY, StudyConfig(**{name: getattr(call.config, name) for name in given}))


def _study(call: Call[DemoOptions], folder: Path, config: StudyConfig) -> None:
    from sweet.cli.study import finish_study
    from sweet.study.study import run_study

    call.run = folder
    finish_study(call, lambda: run_study(folder, config, call.reporter))


def _show(result: StageResult) -> None:
    metrics = result.as_json()["metrics"]
    console.heading(f"sweet demo · {result.run}")
    seconds = Table("stage", "time")
    seconds.columns[1].justify = "right"
    for step, took in metrics["steps"].items():
        seconds.add_row(console.safe_text(step), format_duration(took))
    seconds.add_section()
    seconds.add_row("all", format_duration(metrics["seconds"]))
    console.show(seconds)
    outcome = Table(count(metrics["tasks"], "unseen task"), "success", "tests passed")
    outcome.add_row("before", *(console.metric(metrics, f"{name}_before") for name in FIGURES))
    for one in metrics["rounds"]:
        name = "after" if len(metrics["rounds"]) == 1 else f"after round {one['round']}"
        outcome.add_row(name, *(console.metric(one, rate) for rate in FIGURES))
    console.show(outcome)
