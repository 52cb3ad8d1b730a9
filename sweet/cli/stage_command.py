"""A command that is one stage: `sweet STAGE [RUN] [OPTIONS]`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweet.cli import console
from sweet.cli.command import Call, Command
from sweet.cli.declaration import ArgumentSpec, env_prefix
from sweet.cli.detach import detach
from sweet.cli.notify import VARIABLE
from sweet.cli.options import C
from sweet.cli.reporter import ConsoleReporter
from sweet.errors import NotPushed, ServerError, SweetError, TooManyFailures, UsageError
from sweet.inspection.command_words import to_fill_in
from sweet.inspection.disk_use import size_below
from sweet.inspection.next_commands import suggest_next
from sweet.paths import RUNS
from sweet.publishing.after_training import TRAININGS, pushing
from sweet.runs.process import host
from sweet.runs.run import Run
from sweet.runs.stages import stage_named
from sweet.runs.unfinished import resume_command, unfinished
from sweet.stages.base import PlannedConfig, Reporter, StageConfig, StageResult
from sweet.stages.record import Record
from sweet.stages.resuming import with_settings_of_unfinished


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


def _resumes(config: StageConfig) -> bool:
    return isinstance(config, PlannedConfig) and config.resume


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
    long_work: bool = True

    def arguments(self) -> list[ArgumentSpec]:
        if self.name_run is None:
            return [newest_run_argument()]
        help = "The run directory, created if it does not exist; default: a new one under runs/."
        return [ArgumentSpec("run", "RUN", help, required=False)]

    def resuming(self, call: Call[C]) -> str | None:
        """Return `sweet STAGE RUN --resume`, if the manifest has the attempt of this call."""
        if call.run is None or not isinstance(call.config, PlannedConfig):
            return None
        this = stage_named(self.name)
        with suppress(SweetError, OSError):
            attempt = None if this is None else unfinished(Run(call.run).manifest(), this)
            if attempt is not None and (attempt.pid, attempt.host) == (os.getpid(), host()):
                return resume_command(self.name, call.run)
        return None

    def _with_settings(self, run: Run, call: Call[C]) -> tuple[Run, C]:
        """Return the run and the configuration of the call, with `--resume` those of the unfinished attempt."""
        if not (_resumes(call.config) and isinstance(call.config, PlannedConfig)):
            return run, call.config
        return with_settings_of_unfinished(run, self.name, call.config, call.reporter)

    def preview(self, call: Call[C]) -> None:
        if self.plan is None:
            super().preview(call)
            return
        if not call.common.json:  # before an error about the run
            super().preview(call)
        given: Path | None = call.arguments["run"]
        creates = self.name_run is not None and (given is None or not given.exists()) and not _resumes(call.config)
        run = None if creates else newest_run(given, call.reporter)
        path, config = given if run is None else run.path, call.config
        if run is not None:
            run, config = self._with_settings(run, call)
        plan = self.plan(run, config, call.reporter).as_json()
        if call.common.json:
            settings = config.model_dump(mode="json")
            output = {"stage": self.name, "run": None if path is None else str(path), "config": settings, "plan": plan}
            console.print_json(output)
        else:
            console.show_plan(f"{self.name} · {path or 'a new run'}, not run", plan)

    def _open(self, call: Call[C]) -> tuple[Run, bool]:
        """Return the run of the call, and whether it may have been created for it."""
        given: Path | None = call.arguments["run"]
        resumes = _resumes(call.config)
        created = self.name_run is not None and (given is None or not given.exists()) and not resumes
        if self.name_run is None or resumes:
            run = newest_run(given, call.reporter)
        else:
            task, name = self.name_run(call.config)
            run = new_run(given, name, task, call.reporter)
        call.run = run.path
        return run, created

    def detach(self, call: Call[C]) -> None:
        run, created = self._open(call)
        own = {f"{env_prefix(self.name)}_DETACH": "0", VARIABLE: call.notify or ""}
        kept = [f"--{name}" for name in ("quiet", "verbose", "debug") if getattr(call.common, name)]
        try:
            detached = detach(call.words([*kept, "--json"]), run, {**os.environ, **own})
        except BaseException:
            if created and not run.manifest().attempts:
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        if call.common.json:
            console.print_json(detached.as_json(self.name))
        else:
            console.show(console.safe_text(f"{detached.attempt} goes on as process {detached.pid} in {run.path}."))
            console.show(console.safe_text(f"log: {detached.log}"))
            console.show(console.safe_text(f"follow: {detached.follow}"))
            console.show(console.safe_text(f"stop: {detached.stop}"))

    def work(self, call: Call[C]) -> None:
        run, created = self._open(call)
        try:
            run, config = self._with_settings(run, call)
            work = pushing(self.stage) if self.name in TRAININGS else self.stage
            result = work(run, config, call.reporter)
        except (TooManyFailures, NotPushed) as error:
            if error.result is not None and call.common.json:
                error.found = error.result.as_json()
            elif error.result is not None:
                self.show(error.result)
            raise
        except BaseException as error:
            if created and _is_unused(run, error):
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        console.print_result(result, as_json=call.common.json, draw=self.show)
        then = [line.format(run=shlex.quote(str(run.path))) for line in self.next_commands] or suggest_next(
            run.manifest(), run.path
        )
        if isinstance(call.reporter, ConsoleReporter):
            for line in then[:2]:
                call.reporter.offer(f"next: {line}")
            for line in to_fill_in(then[:2]):
                call.reporter.say(line)
