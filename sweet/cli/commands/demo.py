"""`sweet demo`."""

from __future__ import annotations

from pydantic import Field
from rich.table import Table

from sweet.cli import console
from sweet.cli.command import Call
from sweet.cli.stage_command import StageCommand
from sweet.cli.study import finish_study
from sweet.errors import UsageError
from sweet.paths import RUNS
from sweet.stages.base import OPERATIONAL, StageResult, about, option_key
from sweet.study.demo import DemoConfig, run_demo
from sweet.study.settings import Equal, MethodNames, StudyConfig, StudyTasks
from sweet.tasks.micro.family import MICRO
from sweet.units import count, format_duration

FIGURES = ("success", "tests")

STUDY = RUNS / "study"
"""The default folder of a study. It is fixed, so that the same command resumes the study."""


class DemoOptions(DemoConfig):
    main_options = ("train_tasks", "samples", "seed", "eval_tasks", "rounds", "study", "seeds", "methods", "tasks")

    study: bool = Field(default=False, json_schema_extra=about("Study"))
    """Compare the methods, and ablations of SWEET, over several seeds; RUN is then the study's folder (default:
    runs/study), and the same command resumes the study."""
    seeds: int | None = Field(default=None, ge=1, json_schema_extra=about("Study"))
    """With --study: number of seeds of data, training and sampling, starting with --seed; default: 5."""
    methods: MethodNames = Field(default=(), json_schema_extra=about("Study"))
    """With --study: methods to compare, separated by commas; default: all."""
    figures: bool = Field(default=True, json_schema_extra=about("Study"))
    """With --study: also learning curves over generated tokens, best of N, and credit by kind of turn."""
    tasks: StudyTasks = Field(default=MICRO.name, json_schema_extra=about("Study"))
    """With --study: the generated dataset: micro, micro-long or micro-parts."""
    equal: Equal = Field(default="tokens", json_schema_extra=about("Study"))
    """With --study: what is the same for all methods. tokens: those that the agent generates, which are dialogues
    and sampled replies; methods that learn from whole dialogues get so many more. dialogues: the offline dialogues."""
    jobs: int | None = Field(default=None, ge=1, json_schema_extra=about("Study", OPERATIONAL))
    """With --study: seeds that run at the same time; default: the number of cores."""


class DemoCommand(StageCommand[DemoOptions]):
    def work(self, call: Call[DemoOptions]) -> None:
        given = call.config.model_fields_set - {"study"}
        valid, fix = (StudyConfig, "omit --study") if call.config.study else (DemoConfig, "add --study")
        if foreign := sorted(given - valid.model_fields.keys()):
            flag = f"--{option_key(foreign[0])}"
            how = "with" if call.config.study else "without"
            raise UsageError(f"{flag} has no effect on a demo {how} --study.", where=flag, fix=f"omit it, or {fix}")
        if call.config.study:
            _study(call, StudyConfig(**{name: getattr(call.config, name) for name in given}))
        else:
            super().work(call)

    def detach(self, call: Call[DemoOptions]) -> None:
        if call.config.study:
            raise UsageError("A study does not detach.", where="--detach", fix="nohup sweet demo --study &")
        super().detach(call)


def _study(call: Call[DemoOptions], config: StudyConfig) -> None:
    from sweet.study.study import run_study

    call.run = call.arguments["run"] or STUDY
    folder = call.run
    finish_study(call, lambda: run_study(folder, config, call.reporter))


def _name(_: DemoOptions) -> tuple[str, str]:
    return "code", "demo"


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


COMMANDS = (
    DemoCommand(
        name="demo",
        config=DemoOptions,
        stage=run_demo,
        name_run=_name,
        show=_show,
        summary="Run the whole pipeline on this machine, on the packaged agent and tasks.",
        text="Evaluates the agent, collects dialogues, scores and labels them, trains the critic, ranks candidates, "
        "pairs them, trains the actor, and evaluates it on the same unseen tasks. Nothing is downloaded. With "
        "--rounds the actor then learns from its own dialogues. With --study the methods are compared over several "
        "seeds, with as many tokens generated for each.",
        examples=(
            ("sweet demo", "a few minutes on two CPU cores"),
            ("sweet demo --rounds 3", "each actor's dialogues train the next critic and actor"),
            ("sweet demo --study", "SWEET, the baselines and ablations over five seeds, one to two hours"),
            ("sweet demo --study --methods rft,sweet --seeds 2", "fewer methods and seeds"),
        ),
        next_commands=("sweet view {run}", "sweet report {run}"),
    ),
)
