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
    return ArgumentSpec("run", "RUN", "The run directory; default: the newest under runs/.", required=False)


def newest_run(given: Path | None, reporter: Reporter) -> Run:
    """Return the given run, or the newest under `runs/` and report which one."""
    if given is not None:
        return Run.open(given)
    run = Run.newest(RUNS)
    reporter.say(f"Using {run.path}, the newest run.")
    return run


def new_run(given: Path | None, name: str, task: str, reporter: Reporter) -> Run:
    """Return the given run, created if it does not exist; without one, create a run under `runs/` from `name`."""
    if given is not None:
        return Run.open_or_create(given, task)
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = next(p for n in range(1, 1000) if not (p := RUNS / (stem if n == 1 else f"{stem}-{n}")).exists())
    run = Run.create(path, task)
    reporter.say(f"New run {run.path}.")
    return run


def slug(text: str) -> str:
    """Return a model's name as part of a directory's name: its last component, with plain characters only."""
    last = text.rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^A-Za-z0-9._]+", "-", last).strip("-.") or "agent"


def _is_unused(run: Run, error: BaseException) -> bool:
    """Return whether a new run has no content, because an invalid option or an unreachable server ended its first call.

    Such a run is deleted: as the newest run it would be the default of the next command.
    """
    try:
        manifest = run.manifest()
    except SweetError:  # it has been deleted
        return False
    if any(attempt.pid != os.getpid() for attempt in manifest.attempts):
        return False
    empty = all(size_below(run.file(artifact)) == 0 for artifact in manifest.artifacts)
    return empty and (not manifest.attempts or isinstance(error, UsageError | ServerError))


@dataclass(frozen=True, kw_only=True)
class StageCommand(Command[C]):
    """A stage over a run.

    Attributes:
        stage: the function that does the work.
        name_run: returns the task and the name of a new run, if the stage may create one; None if it requires a run.
        show: prints the result as tables.
        plan: returns the plan of the work, for `--dry-run`. It does not change the run, which is None if the stage
            would create it.
        next_commands: commands to continue with, `{run}` being the run; default: those that `sweet status` suggests.
    """

    stage: Callable[[Run, C, Reporter], StageResult]
    name_run: Callable[[C], tuple[str, str]] | None = None
    show: Callable[[StageResult], None] = console.show_result
    plan: Callable[[Any, C, Reporter], Record] | None = None
    next_commands: tuple[str, ...] = ()

    def arguments(self) -> list[ArgumentSpec]:
        if self.name_run is None:
            return [newest_run_argument()]
        help = "The run directory, created if it does not exist; default: a new one under runs/."
        return [ArgumentSpec("run", "RUN", help, required=False)]

    def preview(self, call: Call[C]) -> None:
        if self.plan is None:
            super().preview(call)
            return
        if not call.common.json:  # before an error about the run
            super().preview(call)
        given: Path | None = call.arguments["run"]
        creates = self.name_run is not None and (given is None or not given.exists())
        run = None if creates else newest_run(given, call.reporter)
        path = given if run is None else run.path
        plan = self.plan(run, call.config, call.reporter).as_json()
        if call.common.json:
            config = call.config.model_dump(mode="json")
            output = {"stage": self.name, "run": None if path is None else str(path), "config": config, "plan": plan}
            console.print_json(output)
        else:
            console.show_plan(f"{self.name} · {path or 'a new run'}, not run", plan)

    def work(self, call: Call[C]) -> None:
        given: Path | None = call.arguments["run"]
        created = self.name_run is not None and (given is None or not given.exists())
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
                console.print_result(error.result, as_json=call.common.json, draw=self.show)
            raise
        except BaseException as error:
            if created and _is_unused(run, error):
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        console.print_result(result, as_json=call.common.json, draw=self.show)
        then = [line.format(run=shlex.quote(str(run.path))) for line in self.next_commands] or suggest_next(
            run.manifest(), run.path
        )
        for line in then[:2]:
            call.reporter.say(f"next: {line}")
