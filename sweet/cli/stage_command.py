"""A command that is one stage: `sweet STAGE [RUN] [OPTIONS]`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec
from sweet.cli.options import C
from sweet.errors import ServerError, SweetError, TooManyFailures, UsageError
from sweet.inspection.disk_use import size_below
from sweet.inspection.status import suggest_next
from sweet.paths import RUNS
from sweet.runs.run import Run
from sweet.stages.base import Reporter, StageResult
from sweet.stages.record import Record


def newest_run_argument() -> ArgumentSpec:
    return ArgumentSpec("run", "RUN", "The run directory; without it the newest under runs/.", required=False)


def newest_run(given: Path | None, reporter: Reporter) -> Run:
    """The run that was named, else the newest under `runs/`, saying which."""
    if given is not None:
        return Run.open(given)
    run = Run.newest(RUNS)
    reporter.say(f"Using {run.path}, the newest run.")
    return run


def new_run(given: Path | None, name: str, task: str, reporter: Reporter) -> Run:
    """The run that was named, made where it is not there; else a new one under `runs/`, named after what it is for."""
    if given is not None:
        return Run.open_or_create(given, task)
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = next(p for n in range(1, 1000) if not (p := RUNS / (stem if n == 1 else f"{stem}-{n}")).exists())
    run = Run.create(path, task)
    reporter.say(f"New run {run.path}.")
    return run


def slug(text: str) -> str:
    """A model's name as part of a directory's name: its last component, plain characters only."""
    last = text.rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._]+", "-", last).strip("-.") or "agent"


def _is_for_nothing(run: Run, error: BaseException) -> bool:
    """Whether a new run would only be in the way, as the newest: a wrong option or a server that is not there ended
    its first call before anything was made."""
    try:
        manifest = run.manifest()
    except SweetError:  # somebody has deleted it
        return False
    if any(attempt.pid != os.getpid() for attempt in manifest.attempts):
        return False
    empty = all(size_below(run.file(artifact)) == 0 for artifact in manifest.artifacts)
    return empty and (not manifest.attempts or isinstance(error, UsageError | ServerError))


@dataclass(frozen=True, kw_only=True)
class StageCommand(Command[C]):
    """A stage over a run.

    Attributes:
        stage: the function that does it.
        name_run: makes the name of a new run from (task, the rest of it) where the stage may begin one; None where it
            needs one that is there.
        show: draws the result for people.
        plan: figures of what the stage would do, for `--dry-run`; it changes nothing in the run, which is None for a
            stage that would begin one.
        then: commands to go on with, `{run}` standing for the run; without them what `sweet status` suggests.
    """

    stage: Callable[[Run, C, Reporter], StageResult]
    name_run: Callable[[C], tuple[str, str]] | None = None
    show: Callable[[StageResult], None] = console.show_result
    plan: Callable[[Any, C, Reporter], Record] | None = None
    then: tuple[str, ...] = ()

    def arguments(self) -> list[ArgumentSpec]:
        if self.name_run is None:
            return [newest_run_argument()]
        help = "The run directory, made where it is not there; without it a new one under runs/."
        return [ArgumentSpec("run", "RUN", help, required=False)]

    def foresee(self, call: Call[C]) -> None:
        if self.plan is None:
            super().foresee(call)
            return
        if not call.common.json:  # at once, whatever the run then lacks
            super().foresee(call)
        given: Path | None = call.arguments["run"]
        begins = self.name_run is not None and (given is None or not given.exists())
        run = None if begins else newest_run(given, call.reporter)
        path = given if run is None else run.path
        plan = self.plan(run, call.config, call.reporter).as_json()
        if call.common.json:
            config = call.config.model_dump(mode="json")
            told = {"stage": self.name, "run": None if path is None else str(path), "config": config, "plan": plan}
            console.print_json(told)
        else:
            console.show_plan(f"{self.name} · {path or 'a new run'}, not run", plan)

    def work(self, call: Call[C]) -> None:
        given: Path | None = call.arguments["run"]
        made = self.name_run is not None and (given is None or not given.exists())
        if self.name_run is None:
            run = newest_run(given, call.reporter)
        else:
            task, name = self.name_run(call.config)
            run = new_run(given, name, task, call.reporter)
        call.run = run.path
        try:
            result = self.stage(run, call.config, call.reporter)
        except TooManyFailures as error:
            if error.result is not None:
                console.finish(error.result, as_json=call.common.json, show_people=self.show)
            raise
        except BaseException as error:
            if made and _is_for_nothing(run, error):
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        console.finish(result, as_json=call.common.json, show_people=self.show)
        then = [line.format(run=shlex.quote(str(run.path))) for line in self.then] or suggest_next(
            run.manifest(), run.path
        )
        for line in then[:2]:
            call.reporter.say(f"next: {line}")
