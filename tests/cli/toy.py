"""A command line with two small stages, on the real implementation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import Field, model_validator

from sweet.cli.app import sweet
from sweet.cli.command import NewRun, OptionalRun, command, made_of
from sweet.cli.group import Group
from sweet.cli.options import SETTINGS
from sweet.cli.spec import Call, Spec
from sweet.cli.stage import run_stage
from sweet.errors import Interrupted, ServerError, TooManyFailures, UsageError
from sweet.runs.run import Run
from sweet.stages.base import OPERATIONAL, Reporter, StageConfig, StageResult
from sweet.stages.record import Rate, Record

SUMMARIES = {"Commands": {"play": "Play.", "learn": "Learn."}}


class PlayConfig(StageConfig):
    tasks: str | None = None
    """Dataset [micro, colbench]."""
    agent_url: list[str] = Field(default_factory=list, json_schema_extra=OPERATIONAL)
    """Servers of the agent."""
    samples: int = Field(default=1, ge=1, le=9)
    """Dialogues for
    each task."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus."""
    scorer: Literal["strict", "upstream"] = "strict"
    """Scorer."""
    from_: str | None = None
    """Artifact to start from."""
    nll: bool = True
    """With the NLL term."""
    resume: bool = False
    """Resume."""
    retry_timeout: float = Field(default=60.0, ge=0, json_schema_extra=OPERATIONAL)
    """Seconds to keep trying."""
    compare: Path | None = None
    """Another run."""

    @model_validator(mode="after")
    def _agree(self) -> PlayConfig:
        if self.samples == 7:
            raise ValueError("samples must not be 7")
        return self


class LearnConfig(StageConfig):
    model: str
    """Model to train."""
    seed: int = 0
    """Seed."""


class ToyMetrics(Record):
    steps: int | None = None
    """Steps."""
    episodes: int | None = None
    """Dialogues."""
    success_rate: Rate | None = None
    """Success."""
    loss: float | None = None
    """Loss."""
    outcomes: dict[str, int] | None = None
    """By outcome."""


def play(run: Run, config: PlayConfig, reporter: Reporter) -> StageResult:
    reporter.say(f"playing {config.tasks}")
    reporter.warn("careful")
    with reporter.progress("dialogues", 3) as bar:
        for _ in range(3):
            bar.advance()
            bar.note(failed=0)
    endings: dict[str | None, BaseException] = {
        "stop": KeyboardInterrupt(),
        "stopped": Interrupted("Stopped in the middle."),
        "server": ServerError("Nobody answers.", where="http://localhost:1", fix="sweet serve-sim"),
        "many": TooManyFailures("3 of 3 failed."),
        "usage": UsageError("No scores.", where="run", fix="sweet eval RUN"),
        "bug": ValueError("bad \x1b[31m[red]thing[/red]"),
        "pipe": BrokenPipeError(),
        "moved": FileNotFoundError(2, "No such file or directory", "/moved/run"),
        "long": OSError(36, "File name too long", "/long"),
        "disk": OSError(28, "No space left on device", "/full/file"),
    }
    if config.tasks in endings:
        raise endings[config.tasks]
    rate = Rate(value=0.25, ci_low=0.2, ci_high=0.3)
    metrics = ToyMetrics(episodes=1234, success_rate=rate, loss=math.nan, outcomes={"answered": 3})
    return StageResult("play", run.path, metrics)


def learn(run: Run, config: LearnConfig, reporter: Reporter) -> StageResult:
    return StageResult("learn", run.path, ToyMetrics(steps=config.seed))


def program(
    work: Callable[..., StageResult] = play, next_commands: tuple[str, ...] = ("sweet learn {run}",)
) -> typer.Typer:
    """The program with a command that plays, and one that learns."""
    specs: dict[str, Spec] = {}

    @command(
        "play", "tests.cli.toy:PlayConfig", examples=[("sweet play RUN [x]", "an example")], is_stage=True, specs=specs
    )
    def run_play(call: Call[PlayConfig], run: NewRun = None) -> None:
        run_stage(call, run, work=work, new_run=("code", "toy"), next_commands=next_commands)

    @command("learn", "tests.cli.toy:LearnConfig", is_stage=True, specs=specs)
    def run_learn(call: Call[LearnConfig], run: OptionalRun = None) -> None:
        run_stage(call, run, work=learn)

    class Toy(Group):
        summaries = SUMMARIES

        def load(self, name: str) -> Any:
            return made_of(specs[name]) if name in specs else None

    app = typer.Typer(name="sweet", cls=Toy, context_settings=SETTINGS)
    app.callback()(sweet)
    return app
