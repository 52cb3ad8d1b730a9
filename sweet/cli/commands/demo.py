"""`sweet demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweet.cli.command import NewRun, command
from sweet.cli.spec import Call
from sweet.errors import UsageError
from sweet.hints import option
from sweet.paths import RUNS

if TYPE_CHECKING:
    from sweet.study.settings import DemoConfig

STUDY = RUNS / "study"
"""The default folder of a study. It is fixed, so that the same command resumes the study."""


@command(
    "demo",
    "sweet.study.settings:DemoConfig",
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
def demo(call: Call[DemoConfig], run: NewRun = None) -> None:
    from sweet.cli.loops import finish_study, show_rounds
    from sweet.cli.stage import run_stage
    from sweet.study.settings import StudyConfig, StudyOptions
    from sweet.study.study import run_demo, run_study

    if call.common.dry_run:
        run_stage(call, run, work=run_demo, new_run=("code", "demo"))
        return
    given = call.config.model_fields_set - {"study"}
    foreign, how, fix = given & {*StudyOptions.model_fields, "tasks"}, "without", "add --study"
    if call.config.study:
        foreign, how, fix = given - StudyConfig.model_fields.keys(), "with", "omit --study"
    if foreign:
        flag = option(min(foreign))
        raise UsageError(f"{flag} has no effect on a demo {how} --study.", where=flag, fix=f"omit it, or {fix}")
    if not call.config.study:
        next_commands = ("sweet view {run}", "sweet report {run}")
        run_stage(call, run, work=run_demo, new_run=("code", "demo"), show=show_rounds, next_commands=next_commands)
    elif call.common.detach:
        raise UsageError("A study does not detach.", where="--detach", fix="nohup sweet demo --study &")
    else:
        call.run = folder = run or STUDY
        config = StudyConfig(**{name: getattr(call.config, name) for name in given})
        finish_study(call, lambda: run_study(folder, config, call.reporter))
