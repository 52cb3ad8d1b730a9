"""Runs one call of a command, from its words to the exit code.

The steps are always the same: parse the words, merge the settings, stop here for `--dry-run`, find or create the run,
do the work, show the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sweet import collector
from sweet.cli.command import Call, Command, Common
from sweet.cli.config_file import read_config
from sweet.cli.declaration import ArgumentSpec, Declaration, OptionSpec
from sweet.cli.environment import NO, YES, from_environment
from sweet.cli.exits import exit_code_of
from sweet.cli.options import resolve
from sweet.cli.parser import parse
from sweet.cli.quiet import without_warnings
from sweet.cli.registry import Registry
from sweet.cli.reporter import ConsoleReporter
from sweet.cli.settings import from_environment_of, from_words, with_current_values
from sweet.cli.unknown import unknown_variables
from sweet.cli.verbose import Verbose
from sweet.errors import Interrupted, UsageError
from sweet.hints import Hint
from sweet.stages.base import Reporter, Silent, StageConfig

Values = Mapping[str, Any]
"""Arguments and options by field name, as `sweet.cli.parser.parse` returns them."""


def call(registry: Registry, declaration: Declaration, words: Sequence[str]) -> int:
    """Run a command and return the exit code.

    Args:
        words: those after the command's name.

    Raises:
        UsageError: the words cannot be parsed.
    """
    values = parse(declaration, words)
    common = _common(declaration, values)

    def work() -> int:
        with without_warnings() if common.quiet and not common.verbose else nullcontext():
            return _call(registry, declaration, common, values)

    return exit_code_of(work, debug=common.debug, as_json=common.json)


def _common(declaration: Declaration, values: Values) -> Common:
    found = {option.key.replace("-", "_"): _common_value(option, values) for option in declaration.common}
    return Common(**{**found, "config": None if found["config"] is None else Path(found["config"])})


def _common_value(option: OptionSpec, values: Values) -> Any:
    """Return the value of an option that has no field in a configuration, and so is validated here."""
    if values[option.field] is not None:
        return values[option.field]
    text = from_environment(option)
    if not option.is_switch:
        return text
    if text is None:
        return False
    word = str(text).strip().lower()
    if word not in (*YES, *NO):
        raise UsageError(
            f"{option.envvar}: should be 1 or 0, not {text!r}.", where=option.envvar, fix="set it to 1 or 0"
        )
    return word in YES


def _call(registry: Registry, declaration: Declaration, common: Common, values: Values) -> int:
    if common.quiet and common.verbose:
        raise UsageError("--quiet and --verbose contradict each other.", where="--quiet, --verbose", fix="give one")
    with collector.paused():  # the module of a stage that computes imports torch
        command: Command[Any] = registry.load(declaration.name)
    arguments = {argument.name: _argument(argument, values[argument.name]) for argument in declaration.positional}
    settings = from_environment_of(declaration) | from_words(declaration, values)
    if common.config is not None:
        settings = read_config(common.config, declaration.name, _all_options(registry, declaration)) | settings
    settings, warnings = with_current_values(declaration, settings)
    config = resolve(command.config, declaration.options, settings, declaration.name)
    flags = [
        word
        for option in declaration.flags
        if option.field in settings and settings[option.field].is_flag
        for word in option.render(settings[option.field].value)
    ]
    reporter: Reporter = Silent() if common.quiet else ConsoleReporter(stamped=common.verbose)
    this: Call[StageConfig] = Call(command, config, arguments, common, flags, reporter)
    for warning in (*warnings, *unknown_variables(registry)):
        reporter.warn(warning)
    verbose = Verbose(this) if common.verbose else None
    if verbose:
        verbose.settings(declaration, settings)
    act = command.preview if common.dry_run else command.detach if common.detach else command.work
    notifier = None
    if declaration.long_work:
        from sweet.cli.notify import Notifier, given_address

        this.notify = given_address(common.notify, declaration.name)
        if act == command.work:
            notifier = Notifier(declaration.name, this.notify, reporter, quiet=common.quiet)
    try:
        with nullcontext() if notifier is None else notifier.of(this):
            act(this)
    except (KeyboardInterrupt, Interrupted) as stop:
        what = stop.what if isinstance(stop, Interrupted) else "Stopped. Finished work is kept."
        needs = stop.needs if isinstance(stop, Interrupted) else None
        fix = this.resume_command() if needs is None else Hint(this.resume_command(), " ", needs)
        raise Interrupted(what, where=this.run, fix=fix, needs=needs) from stop
    finally:
        if verbose:
            verbose.finish()
    return 0


def _argument(argument: ArgumentSpec, value: Any) -> Any:
    return Path(value) if argument.is_path and value is not None else value


def _all_options(registry: Registry, declaration: Declaration) -> dict[str, tuple[OptionSpec, ...]]:
    """Return the options of every command: a configuration file may have tables for all of them."""
    own = {declaration.name: declaration.options}
    return {name: registry.declaration(name, from_index=True).options for name in registry.summaries} | own
