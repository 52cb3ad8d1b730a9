"""Runs one call of a command, from the values of its parameters to the exit code.

The steps are always the same: merge the settings, stop here for `--dry-run`, call the command's function, which finds
or creates the run, does the work and shows the result.
"""

from __future__ import annotations

from contextlib import nullcontext
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
from sweet.cli.spec import SEPARATOR, Call, Common, Spec, words_after_separator
from sweet.cli.verbosity import Verbose, without_warnings
from sweet.errors import Interrupted, UsageError
from sweet.stages.base import Reporter, Silent


def call(spec: Spec, context: typer.Context) -> int:
    """Run a command and return the exit code."""
    given = {option.key.replace("-", "_"): context.params[option.field] for option in spec.common}
    common = Common(**{**given, "config": given["config"] and Path(given["config"])})

    def work() -> int:
        with without_warnings() if common.quiet and not common.verbose else nullcontext():
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
        arguments[spec.tail.field] = words = words_after_separator(context)
        if words:
            settings[spec.tail.field] = Setting(words, SEPARATOR)
    with collector.paused():  # the module of a configuration may import many others
        configuration = resolve_name(spec.configuration)
    config = resolve(configuration, spec.options, settings, spec.name)
    flags = [
        word
        for option in spec.flags
        if option.field in settings and settings[option.field].is_flag
        for word in option.render(settings[option.field].value)
    ]
    reporter: Reporter = Silent() if common.quiet else ConsoleReporter(stamped=common.verbose)
    this: Call[Any] = Call(spec, config, arguments, common, flags, reporter)
    for warning in unknown_variables(program):
        reporter.warn(warning)
    verbose = Verbose(this) if common.verbose else None
    if verbose:
        verbose.settings(settings)
    try:
        act(this)
    except (KeyboardInterrupt, Interrupted) as stop:
        what = stop.what if isinstance(stop, Interrupted) else "Stopped. Finished work is kept."
        needs = stop.needs if isinstance(stop, Interrupted) else None
        fix = this.resume_command() if needs is None else f"{this.resume_command()} {needs}"
        raise Interrupted(what, where=this.run, fix=fix, needs=needs) from stop
    finally:
        if verbose:
            verbose.finish()


def act(call: Call[Any]) -> None:
    """Do what a call asks for, once its configuration is valid."""
    if call.common.dry_run and not call.spec.is_stage:
        console.print_json(call.config.model_dump(mode="json"))
    else:
        call.spec.function(call, **{name: call.arguments[name] for name in call.spec.positional})
