"""Stages as commands: `sweet STAGE [RUN] [OPTIONS]`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from sweet import hints
from sweet.cli import console
from sweet.cli.long_work import given_address, notifying
from sweet.cli.reporter import ConsoleReporter
from sweet.cli.spec import Call
from sweet.errors import ServerError, SweetError, TooManyFailures, UsageError
from sweet.inspection.next_commands import suggest_next, to_fill_in
from sweet.paths import RUNS
from sweet.runs.content import size_of
from sweet.runs.process import host
from sweet.runs.run import Run
from sweet.runs.unfinished import unfinished
from sweet.stages.base import Reporter, StageResult
from sweet.stages.prices import PricedConfig, given_prices
from sweet.stages.resuming import for_run, may_begin, with_settings_of_unfinished

Work = Callable[[Run, Any, Reporter], StageResult]
Show = Callable[[StageResult], None]


def newest_run(run_path: Path | None, reporter: Reporter) -> Run:
    """Return the given run, or the newest under `runs/` and report which one."""
    if run_path is not None:
        return Run.open(run_path)
    run = Run.newest(RUNS)
    reporter.say(f"Using {run.path}, the newest run.")
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
    empty = all(size_of(run.file(artifact)) == 0 for artifact in manifest.artifacts)
    return empty and (not manifest.attempts or isinstance(error, UsageError | ServerError))


def _goes_on(call: Call[Any], run_path: Path | None) -> bool:
    """Return whether a call has --resume and no run of its own to begin, as a training with other options may."""
    begins = run_path is not None and Run(run_path).is_free and may_begin(call.spec.stage, call.config)
    return bool(getattr(call.config, "resume", False)) and not begins


def run_stage(
    call: Call[Any],
    run_path: Path | None,
    *,
    work: Work | None = None,
    new_run: tuple[str, str] | None = None,
    show: Show = console.show_result,
    next_commands: Sequence[str] = (),
    resuming: Callable[[], str | None] | None = None,
) -> None:
    """Do what a call of a stage asks for: the plan, or the work. A new run that an error leaves without content is
    deleted, unless its folder was there.

    Args:
        run_path: the run that was given.
        work: does the work; by default the function of the stage of the pipeline.
        new_run: the task and the name of a new run, if the stage may create one; None if it requires a run.
        show: prints the result as tables.
        next_commands: commands to continue with, `{run}` being the run; default: those that `sweet status` suggests.
        resuming: returns the command line that resumes an interrupted call; by default, that with `--resume`.
    """
    stage = call.spec.stage
    makes_folder = run_path is None or not run_path.exists()
    creates = new_run is not None and (run_path is None or Run(run_path).is_free) and not _goes_on(call, run_path)
    call.resuming = resuming or (lambda: _resuming(call))
    if call.spec.long_work:
        call.notify = given_address(call.common.notify, call.spec.name)
    if call.common.dry_run:
        _preview(call, run_path, creates=creates)
        return
    if stage is not None and creates:
        _ = stage.run  # an interrupt while it is imported leaves no run
    with notifying(call) if call.spec.long_work else nullcontext():
        run = open_run(call, run_path, new_run)
        try:
            _work(call, run, work, show, next_commands)
        except BaseException as error:
            if makes_folder and creates and _is_unused(run, error):
                shutil.rmtree(run.path, ignore_errors=True)
            raise


def _resuming(call: Call[Any]) -> str | None:
    """Return `sweet STAGE RUN --resume`, if the manifest has the attempt of this call."""
    if call.run is None or call.spec.stage is None:
        return None
    with suppress(SweetError, OSError):
        attempt = unfinished(Run(call.run).manifest(), call.spec.stage)
        if attempt is not None and (attempt.pid, attempt.host) == (os.getpid(), host()):
            return hints.stage(call.spec.name, call.run, resume=True)
    return None


def _preview(call: Call[Any], run_path: Path | None, *, creates: bool) -> None:
    """Print the resolved configuration, and the plan if the command is a stage of the pipeline.

    Args:
        creates: whether the call would create a run.
    """
    stage, config = call.spec.stage, call.config if run_path is None else for_run(call.config, Run(run_path))
    settings = config.model_dump(mode="json")
    if stage is None or not call.common.json:  # before an error about the run
        console.print_json(settings)
    if stage is None:
        return
    run = None if creates else newest_run(run_path, call.reporter)
    path = run_path if run is None else run.path
    if run is not None:
        run, config = with_settings_of_unfinished(run, stage.name, config, call.reporter)
    if isinstance(config, PricedConfig):
        given_prices(config)  # the work would end at a file that cannot be used
    plan = stage.plan(run, config, call.reporter).as_json()
    if call.common.json:
        settings = config.model_dump(mode="json")
        console.print_json({"stage": call.spec.name, "run": path and str(path), "config": settings, "plan": plan})
    else:
        console.show_plan(f"{call.spec.name} · {path or 'a new run'}, not run", plan)


def open_run(call: Call[Any], run_path: Path | None, new_run: tuple[str, str] | None) -> Run:
    """Return the run of the call: the given one, which is created if it does not exist, or else a new one under `runs/`
    or the newest.

    Args:
        new_run: the task and the name of a new run, if the stage may create one.
    """
    if new_run is None or _goes_on(call, run_path):
        run = newest_run(run_path, call.reporter)
    elif run_path is not None:
        run = Run.open_or_create(run_path, new_run[0])
    else:
        stem = f"{new_run[1]}-{time.strftime('%Y%m%d-%H%M%S')}"
        path = next(p for n in range(1, 1000) if not (p := RUNS / (stem if n == 1 else f"{stem}-{n}")).exists())
        run = Run.create(path, new_run[0])
        call.reporter.say(f"New run {run.path}.")
    call.run = run.path
    return run


def _work(call: Call[Any], run: Run, work: Work | None, show: Show, next_commands: Sequence[str]) -> None:
    """Do the work, print its result, and report the next commands; see `run_stage`."""
    if work is None:
        assert call.spec.stage is not None, "a command without its own work is a stage of the pipeline"
        work = call.spec.stage.run
    try:
        run, config = with_settings_of_unfinished(run, call.spec.name, call.config, call.reporter)
        result = work(run, config, call.reporter)
    except TooManyFailures as error:
        if error.result is not None and call.common.json:
            error.found = error.result.as_json()
        elif error.result is not None:  # of the command, or of a stage that it called
            (show if error.result.stage == call.spec.name else console.show_result)(error.result)
        raise
    console.print_result(result, as_json=call.common.json, draw=show)
    if isinstance(call.reporter, ConsoleReporter):
        named = [line.format(run=shlex.quote(str(run.path))) for line in next_commands]
        then = named or suggest_next(run.manifest(), run.path)
        for line in then[:2]:
            call.reporter.offer(f"next: {line}")
        for line in to_fill_in(then[:2]):
            call.reporter.say(line)
