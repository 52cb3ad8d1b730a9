"""`--resume`: a stage goes on with its newest unfinished attempt, whose settings are in the manifest.

All settings are those of the attempt. What is given beside the option replaces a setting that does not change the
result; for one that does it is an error. The inputs are those of the attempt too, also where newer ones exist since.
A training with settings beside the option begins where none is unfinished, so that a job's script may always have it.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from sweet.errors import UsageError, first_problem
from sweet.hints import changed as changed_words
from sweet.hints import option, stage
from sweet.runs.manifest import Attempt
from sweet.runs.run import Run
from sweet.runs.stages import Stage, stage_named
from sweet.runs.trust import check
from sweet.runs.unfinished import unfinished
from sweet.stages.base import PlannedConfig, Reporter, StageConfig
from sweet.stages.options import TaskConfig

C = TypeVar("C", bound=PlannedConfig)
T = TypeVar("T", bound=StageConfig)

_OF_THE_CALL = {"resume", "trust"}
"""Settings that are those of the call, whatever the attempt has recorded."""


def may_begin(this: Stage | None, config: StageConfig) -> bool:
    """Return whether a call with `--resume` begins where nothing is unfinished: a training with other options too."""
    return this is not None and this.resumes == "if asked" and bool(config.model_fields_set - _OF_THE_CALL)


def for_run(config: T, run: Run) -> T:
    """Return a configuration with the kind of task of a run that exists, where none was given.

    Raises:
        UsageError: another kind was given.
    """
    if not isinstance(config, TaskConfig) or not run.exists or config.task == (kind := run.manifest().task):
        return config
    if "task" in config.model_fields_set:
        what = f"The run is for tasks of the kind {kind}, not {config.task}."
        raise UsageError(what, where=run.path, fix="name another directory")
    return config.model_copy(update={"task": kind})


def with_settings_of_unfinished(run: Run, name: str, config: C, reporter: Reporter) -> tuple[Run, C]:
    """Return the run and the configuration with which a stage goes on, without `resume` those that are given
    (`for_run`).

    Args:
        name: the stage, or another command, which has no `resume`.
        config: the fields that were set are those that were given.

    Returns:
        The run, whose newest artifacts are for this stage those that the attempt reads, and the configuration.

    Raises:
        UsageError: no attempt is unfinished, its settings or inputs are not valid any more, a given setting would
            change the result, or recorded ones would start something and are not of this user (`sweet.runs.trust`);
            or the run is for another kind of task.
    """
    this = stage_named(name)
    if this is None:
        return run, config
    config = for_run(config, run)
    if not config.resume:
        return run, config
    fields_set = config.model_fields_set - _OF_THE_CALL
    attempt = unfinished(run.manifest(), this)
    if attempt is None:
        if may_begin(this, config):
            return run, config
        raise _nothing(run, this)
    recorded = {**type(config).default_settings(), **attempt.config}
    values = config.model_dump(mode="json")
    changed = sorted(name for name in fields_set - type(config).operational() if values[name] != recorded[name])
    if changed:
        raise _differs(attempt, {name: (recorded[name], values[name]) for name in changed}, run)
    overrides = {name: values[name] for name in fields_set}
    merged = _merged(attempt, config, overrides, run)
    used, whose = merged.model_dump(mode="json"), f"The settings of {attempt.id}"
    check([attempt.config], [used], [overrides], trusted=config.trust, what=whose, where=run.path)
    words = merged.option_words(merged.model_dump(mode="json", exclude={"resume"}))
    reporter.say(f"Going on with {attempt.id}{': ' if words else ''}{' '.join(words)}.")
    return run.reading(attempt.inputs, needed_by=f"{name} --resume"), merged


def _merged(attempt: Attempt, config: C, overrides: dict[str, Any], run: Run) -> C:
    """Return the settings of an attempt with those that were given, those that equal a default left out: a stage may
    ask which were set."""
    defaults = type(config).default_settings()
    settings = {**attempt.config, **overrides}
    changed = {name: value for name, value in settings.items() if name not in defaults or value != defaults[name]}
    named = {name: value for name, value in changed.items() if name not in _OF_THE_CALL}
    try:
        return type(config).model_validate({**named, "resume": True})
    except ValidationError as error:
        name, what = first_problem(error)
        wrong = f"{name or 'the whole'}: {what}"
        raise UsageError(
            f"The settings of {attempt.id} are not valid: {wrong}. Without --resume the stage begins again.",
            where=run.path,
            fix=stage(attempt.stage, run.path),
        ) from error


def _nothing(run: Run, this: Stage) -> UsageError:
    attempts = [attempt for attempt in run.manifest().attempts if attempt.stage == this.name]
    running = [attempt.id for attempt in attempts if attempt.status == "running"]
    why, fix = ". Without --resume one begins.", stage(this.name, run.path)
    if running:
        why, fix = f": {running[-1]} is running.", "wait for it or stop it"
    return UsageError(f"There is no unfinished attempt of {this.name} to go on with{why}", where=run.path, fix=fix)


def _differs(attempt: Attempt, changed: dict[str, tuple[Any, Any]], run: Run) -> UsageError:
    parts = [changed_words(option(name), before, value) for name, (before, value) in changed.items()]
    return UsageError(
        f"{attempt.id} was begun with other settings, which decide its result: {', '.join(parts)}.",
        where=run.path,
        fix=f"omit {', '.join(map(option, changed))}, or omit --resume",
    )
