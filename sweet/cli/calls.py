"""Runs one call of a command, from the values of its parameters to the exit code.

The steps are always the same: merge the settings, stop here for `--dry-run`, call the command's function, which finds
or creates the run, does the work and shows the result. `--verbose` reports where each setting is from, and the files.
`--quiet` also silences libraries, which warn in three ways: by `logging`, by `warnings`, and by the C++ code of torch,
which reads a variable when it is imported. Errors of this program do not go through any of these.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import typer

from sweet import collector
from sweet.cli import console
from sweet.cli.errors import unknown_variables
from sweet.cli.exits import exit_code_of
from sweet.cli.fields import resolve, settings_of
from sweet.cli.options import Setting
from sweet.cli.reporter import ConsoleReporter
from sweet.cli.spec import SEPARATOR, TAIL, Call, Common, Spec
from sweet.errors import INTERRUPTED_BY, Interrupted, SweetError, UsageError
from sweet.hints import words_of_option
from sweet.runs.run import Run
from sweet.stages.base import Reporter, Silent
from sweet.units import format_duration, format_value


def call(spec: Spec, context: typer.Context) -> int:
    """Run a command and return the exit code."""
    values = {option.key.replace("-", "_"): context.params[option.field] for option in spec.common}
    common = Common(**{**values, "config": values["config"] and Path(values["config"])})

    def work() -> int:
        quiet = without_warnings() if common.quiet and not common.verbose else nullcontext()
        with quiet, console.only_json() if common.json else nullcontext():
            _call(spec, context, common)
        return 0

    return exit_code_of(work, debug=common.debug, as_json=common.json)


def _call(spec: Spec, context: typer.Context, common: Common) -> None:
    if common.quiet and common.verbose:
        raise UsageError("--quiet and --verbose contradict each other.", where="--quiet, --verbose", fix="give one")
    program: Any = context.find_root().command
    arguments = {name: context.params[name] for name in spec.arguments}
    settings = settings_of(context, spec.options)
    if spec.tail is not None:
        arguments[spec.tail.field] = words = context.meta.get(TAIL) or None
        if words:
            settings[spec.tail.field] = Setting(words, SEPARATOR)
    with collector.paused():  # the module of a configuration may import many others
        configuration = resolve_name(spec.configuration)
    config = resolve(configuration, spec.options, settings, spec.name)
    flags = [
        word
        for option in spec.flags
        if option.field in settings and settings[option.field].where == option.flag
        for word in words_of_option(option.key, settings[option.field].value)
    ]
    reporter: Reporter = Silent() if common.quiet else ConsoleReporter(stamped=common.verbose)
    this: Call[Any] = Call(spec, config, arguments, common, flags, reporter)
    for warning in unknown_variables(program):
        reporter.warn(warning)
    began = time.monotonic()
    if common.verbose:
        values: dict[str, Any] = config.model_dump(mode="json")
        for option in spec.options:
            source = settings[option.field].where if option.field in settings else "default"
            reporter.say(f"setting {option.key} = {format_value(values[option.field])}  ({source})")
    try:
        act(this)
    except (KeyboardInterrupt, Interrupted) as stop:
        what, needs = f"Stopped by {INTERRUPTED_BY[-1]}. Finished work is kept.", None
        if isinstance(stop, Interrupted):
            what, needs = stop.what, stop.needs
        fix = this.resume_command() if needs is None else f"{this.resume_command()} {needs}"
        raise Interrupted(what, where=this.run, fix=fix, needs=needs) from stop
    finally:
        if common.verbose:
            for line in _files(this):
                reporter.say(line)
            reporter.say(f"{format_duration(time.monotonic() - began)} in total")


def _files(call: Call[Any]) -> Iterator[str]:
    """Yield what the attempts of this call have read and written."""
    if call.run is None:
        return
    try:
        manifest = Run(call.run).manifest()
    except SweetError:  # it is missing or damaged, which the call has reported
        return
    for attempt in manifest.attempts:
        if attempt.pid == os.getpid() and attempt.status != "interrupted":
            yield from (f"read {ref.id}" for ref in attempt.inputs)
            yield from (f"wrote {call.run}/{file.path}" for file in manifest.artifacts if file.id in attempt.outputs)
            yield f"wrote {call.run}/{attempt.log}"
            yield f"{attempt.id}: {attempt.status}"


def act(call: Call[Any]) -> None:
    """Do what a call asks for, once its configuration is valid."""
    if call.common.dry_run and not call.spec.is_stage:
        console.print_json(call.config.model_dump(mode="json"))
    else:
        call.spec.function(call, **{name: call.arguments[name] for name in call.spec.positional})


_VARIABLES = {
    "PYTHONWARNINGS": "ignore",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
}
"""What started processes, and libraries that are not imported yet, read. Variables that are set keep their values."""


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the warnings of libraries in this context."""
    added = {name: value for name, value in _VARIABLES.items() if name not in os.environ}
    disabled = logging.root.manager.disable
    os.environ.update(added)
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for name in added:
            os.environ.pop(name, None)
