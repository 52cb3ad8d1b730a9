"""What all commands share: the common options, the RUN argument, and what happens around the work.

A command is declared, not programmed: a configuration class, a function, words. `CommandLine.add` makes a Typer
command of it, whose signature is put together from the configuration (see `sweet.cli.options`). The call itself is
always the same: merge what was given, stop here for `--dry-run`, find or make the run, work, show the result. Every
exception ends here as a panel and an exit code; nothing a command does needs its own handling.
"""

from __future__ import annotations

import inspect
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

import typer
from rich.markup import escape
from typer.core import TyperCommand

from sweet.cli import console
from sweet.cli.config_file import read_config
from sweet.cli.options import (
    C,
    Given,
    OptionSpec,
    as_parameter,
    env_prefix,
    given_on_command_line,
    option_specs,
    resolve,
)
from sweet.cli.reporter import ConsoleReporter
from sweet.errors import Interrupted, SweetError
from sweet.stages.base import Reporter, Silent, StageConfig

COMMON_PANEL = "Common"
HELP_NAMES = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Common:
    """The options every command has."""

    config: Path | None
    dry_run: bool
    json: bool
    quiet: bool
    debug: bool


@dataclass
class Call(Generic[C]):
    """One call of a command.

    Attributes:
        arguments: the positional arguments, by name.
        given: the options that came as flags, in the words of the command line.
        run: the run directory, once it is known; interruptions name it.
    """

    command: Command[C]
    config: C
    arguments: dict[str, Any]
    common: Common
    given: list[str]
    reporter: Reporter
    run: Path | None = None

    def again(self) -> str:
        """The command that goes on with what this call began."""
        words = ["sweet", *self.command.name.split()]
        words += [str(self.run)] if self.run else [str(v) for v in self.arguments.values() if isinstance(v, str | Path)]
        if self.common.config:
            words += ["--config", str(self.common.config)]
        words += self.given
        if getattr(self.config, "resume", None) is False:
            words = [word for word in words if word != "--no-resume"] + ["--resume"]
        for rest in self.arguments.values():
            words += ["--", *rest] if isinstance(rest, list) and rest else []
        return shlex.join(words)


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[C]):
    """A command: its words and its configuration. Subclasses say which arguments it takes and what it does.

    Attributes:
        name: as typed; a second word makes it a subcommand (`data import`).
        summary: one line for the list of commands.
        text: further paragraphs of the help.
        examples: (command line, what it does).
    """

    name: str
    config: type[C]
    summary: str
    text: str = ""
    examples: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> list[inspect.Parameter]:
        """The positional arguments. One that is named like a field of the configuration takes its option's place."""
        return []

    def positional(self) -> list[inspect.Parameter]:
        """The positional arguments, and last what follows `--`."""
        tail = self.config.behind_dashes()
        if tail is None:
            return self.arguments()
        help = self.config.model_fields[tail].description
        declared = typer.Argument(None, metavar="-- VLLM_OPTIONS", help=help, show_default=False)
        kind = inspect.Parameter.KEYWORD_ONLY
        return [
            *self.arguments(),
            inspect.Parameter(tail, kind, default=declared, annotation=list[str] | None),
        ]

    @abstractmethod
    def work(self, call: Call[C]) -> None:
        """Do it, and show what came out."""

    def foresee(self, call: Call[C]) -> None:
        """What `--dry-run` does in place of the work."""
        console.print_json(call.config.model_dump(mode="json"))

    def help(self) -> str:
        return "\n\n".join(filter(None, (self.summary, self.text)))

    def epilog(self) -> str:
        lines = [f"[dim]# {escape(what)}[/dim]\n\n[bold]{escape(line)}[/bold]" for line, what in self.examples]
        prefix = env_prefix(self.name)
        lines.append(f"[dim]Every option can also come from --config FILE or {prefix}_OPTION.[/dim]")
        return "\n\n".join(lines)


@dataclass
class CommandLine:
    """The Typer app, and what its commands accept (a configuration file may speak to all of them)."""

    app: typer.Typer
    commands: dict[str, Command[Any]] = field(default_factory=dict)
    specs: dict[str, list[OptionSpec]] = field(default_factory=dict)
    group_summaries: dict[str, str] = field(default_factory=dict)
    groups: dict[str, typer.Typer] = field(default_factory=dict)

    def add(self, command: Command[Any]) -> None:
        self.commands[command.name] = command
        self.specs[command.name] = option_specs(command.config, command.name)
        *parents, leaf = command.name.split()
        app = self._group(parents[0]) if parents else self.app
        register = app.command(
            leaf,
            cls=TailCommand if command.config.behind_dashes() else None,
            help=command.help(),
            short_help=command.summary,
            epilog=command.epilog(),
            context_settings=HELP_NAMES,
        )
        register(self._callback(command))

    def _group(self, name: str) -> typer.Typer:
        if name not in self.groups:
            self.groups[name] = typer.Typer(help=self.group_summaries[name], rich_markup_mode="rich")
            self.groups[name].callback(invoke_without_command=True)(help_where_nothing_is_asked)
            self.app.add_typer(self.groups[name], name=name, context_settings=HELP_NAMES)
        return self.groups[name]

    def _callback(self, command: Command[Any]) -> Callable[..., None]:
        positional = command.positional()
        specs = self.specs[command.name]

        def callback(ctx: typer.Context, **values: Any) -> None:
            common = Common(**{name: values.pop(f"common_{name}") for name in Common.__dataclass_fields__})
            arguments = {parameter.name: values[parameter.name] for parameter in positional}
            given = given_on_command_line(ctx, specs, values)
            code = guarded(lambda: self._call(command, common, arguments, given), debug=common.debug)
            raise typer.Exit(code)

        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        taken = {parameter.name for parameter in positional}
        options = [as_parameter(spec) for spec in specs if spec.field not in taken]
        parameters = [context, *positional, *options, *common_parameters(command.name)]
        callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        callback.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return callback

    def _call(self, command: Command[Any], common: Common, arguments: dict[str, Any], given: dict[str, Given]) -> None:
        specs = self.specs[command.name]
        by_file = read_config(common.config, command.name, self.specs) if common.config else {}
        config = resolve(command.config, specs, {**by_file, **given}, command.name)
        words = [
            word
            for spec in specs
            if spec.field in given and spec.field not in arguments
            for word in _words(spec, given[spec.field])
        ]
        reporter: Reporter = Silent() if common.quiet else ConsoleReporter()
        call: Call[StageConfig] = Call(command, config, arguments, common, words, reporter)
        try:
            (command.foresee if common.dry_run else command.work)(call)
        except (KeyboardInterrupt, Interrupted) as stop:
            what = stop.what if isinstance(stop, Interrupted) else "Stopped. What was done is kept."
            raise Interrupted(what, where=call.run, fix=call.again()) from stop


class TailCommand(TyperCommand):
    """A command whose last argument takes what follows `--`, and only that, whether or not those before it are there.

    The usual parser forgets where the `--` stood, and would take the first word after it for a RUN that was left out.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        tail = args[at + 1 :]
        rest = super().parse_args(ctx, args[:at])
        name = next(str(parameter.name) for parameter in self.params if parameter.nargs == -1)
        stray = ctx.params.get(name)
        if stray:
            ctx.fail(f"Got unexpected extra argument ({' '.join(stray)}); vllm's options go behind --.")
        if tail:
            ctx.params[name] = tail
            ctx.set_parameter_source(name, type(ctx.get_parameter_source(name))["COMMANDLINE"])
        return rest


def help_where_nothing_is_asked(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _words(spec: OptionSpec, given: Given) -> list[str]:
    return spec.render(given.value) if given.flag else []


def guarded(work: Callable[[], None], *, debug: bool) -> int:
    """Do the work; an exception becomes a panel on stderr. Returns the exit code."""
    try:
        work()
    except SweetError as error:
        if debug:
            console.show_traceback(error)
        console.show_error(error)
        return error.exit_code
    except BrokenPipeError:
        console.silence_broken_pipe()
        return 0
    except KeyboardInterrupt:
        console.show_error(Interrupted("Stopped."))
        return Interrupted.exit_code
    except OSError as error:
        if debug:
            console.show_traceback(error)
        if error.filename is None:
            console.show_bug(error)
        else:
            console.show_error(SweetError(f"{error.strerror}.", where=error.filename))
        return 1
    except Exception as error:
        if debug:
            console.show_traceback(error)
        console.show_bug(error)
        return 1
    return 0


def path_argument(name: str, metavar: str, help: str, *, required: bool) -> inspect.Parameter:
    """A positional argument that is a path."""
    declared = typer.Argument(... if required else None, metavar=metavar, help=help, show_default=False)
    annotation = Path if required else Path | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)


def common_parameters(command: str) -> list[inspect.Parameter]:
    prefix = env_prefix(command)

    def option(name: str, annotation: Any, default: Any, help: str) -> inspect.Parameter:
        declared = typer.Option(
            default,
            f"--{name.replace('_', '-')}",
            envvar=f"{prefix}_{name.upper()}",
            show_envvar=False,
            help=help,
            show_default=False,
            rich_help_panel=COMMON_PANEL,
        )
        return inspect.Parameter(
            f"common_{name}", inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation
        )

    return [
        option("config", Path | None, None, "TOML file of options: a table a command, or keys above the tables."),
        option("dry_run", bool, False, "Print the resolved configuration as JSON and do nothing."),
        option("json", bool, False, "Print the result as one JSON object."),
        option("quiet", bool, False, "Say nothing on stderr but errors."),
        option("debug", bool, False, "Show the traceback of an error."),
    ]
