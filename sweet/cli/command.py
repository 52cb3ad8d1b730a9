"""Commands: functions whose options are the fields of a configuration.

    @command("report", "sweet.report:ReportConfig", examples=[("sweet report", "the newest run")])
    def report(call: Call[ReportConfig], run: OptionalRun = None) -> None: ...

The parameters of the function behind `call` are positional arguments, declared as in any program of Typer. The options
are added when the command is loaded: one for each field of the configuration, and the common ones. A call merges the
settings (`sweet.cli.fields`), stops for `--dry-run`, calls the function and turns exceptions into exit codes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand
from typer.main import get_command

from sweet.cli.completion import complete_run, completion_of
from sweet.cli.config_file import use_config
from sweet.cli.options import HELP_ALL, SETTINGS, given_as, parameter
from sweet.cli.spec import SEPARATOR, TAIL, Spec
from sweet.runs.stages import stage_named

Function = TypeVar("Function", bound=Callable[..., None])

OptionalRun = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN", help="The run directory; default: the newest under runs/.", autocompletion=complete_run
    ),
]
"""The argument of a command that continues with a run."""

NewRun = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="The run directory, created if it does not exist; default: a new one under runs/.",
        autocompletion=complete_run,
    ),
]
"""The argument of a command that may begin a run."""

SPECS: dict[str, Spec] = {}
"""The commands of the modules that have been imported, by their names."""


def command(
    name: str,
    configuration: str | None = None,
    *,
    examples: Sequence[tuple[str, str]] = (),
    text: str = "",
    is_stage: bool = False,
    long_work: bool | None = None,
    specs: dict[str, Spec] = SPECS,
) -> Callable[[Function], Function]:
    """Make a function a command of the program.

    Args:
        configuration: see `Spec`, as the others; not given for a stage of the pipeline (`sweet.runs.stages`).
        specs: where it is put.
    """
    stage = stage_named(name) if configuration is None else None
    is_stage = is_stage or stage is not None

    def register(function: Function) -> Function:
        specs[name] = Spec(
            name=name,
            configuration=configuration or stage.config_reference,  # type: ignore[union-attr]
            function=function,
            text=text,
            examples=examples,
            stage=stage,
            is_stage=is_stage,
            long_work=is_stage if long_work is None else long_work,
        )
        return function

    return register


def made_of(spec: Spec) -> Any:
    """Return the command that Typer makes of what is declared."""

    def callback(context: typer.Context, **_: Any) -> int:
        from sweet.cli.calls import call

        return call(spec, context)

    parameters = list(_parameters(spec))
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    callback.__annotations__ = {param.name: param.annotation for param in parameters}
    callback.spec = spec  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command(spec.name.split()[-1], cls=Command, context_settings=SETTINGS)(callback)
    return get_command(app)


def _parameters(spec: Spec) -> Iterator[inspect.Parameter]:
    """Yield the parameters from which Typer makes a command."""
    yield inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    arguments = {name: text for name, text in spec.function.__annotations__.items() if name in spec.arguments}
    hints = get_type_hints(SimpleNamespace(__annotations__=arguments), spec.function.__globals__, include_extras=True)
    for name, argument in spec.arguments.items():
        yield argument.replace(kind=argument.KEYWORD_ONLY, annotation=hints.get(name, argument.annotation))
    for option in (*spec.flags, *spec.common):
        reads_file = {"callback": use_config, "is_eager": True} if option.field == "common_config" else {}
        yield option.parameter(autocompletion=completion_of(spec.name, option), **reads_file)
    yield parameter("help_all", bool, _HELP_ALL, default=False)


def _show_complete_help(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        from sweet.cli.help import command_help

        typer.echo(command_help(context.command, complete=True), color=True)
        raise typer.Exit


_HELP_ALL = typer.Option(
    HELP_ALL,
    help="Show the help with every option.",
    callback=_show_complete_help,
    is_eager=True,
    expose_value=False,
)


class Command(TyperCommand):
    """A command of `command`: its help, and its tail."""

    @property
    def spec(self) -> Spec:
        spec: Spec = self.callback.spec  # type: ignore[union-attr]
        return spec

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.spec.tail is not None and SEPARATOR in args:
            at = args.index(SEPARATOR)
            args, ctx.meta[TAIL] = args[:at], args[at + 1 :]
        if not ctx.resilient_parsing:
            try:
                if "" in args:
                    self._refuse_empty(ctx, [*args])
                rest = super().parse_args(ctx, args)
            except typer.TyperException as error:
                error.ctx = ctx  # type: ignore[attr-defined]  # an option without a value does not have it
                raise
            if self.spec.tail is not None and given_as(ctx, self.spec.tail.field) == "COMMANDLINE":
                ctx.fail(f"Got unexpected extra argument ({' '.join(ctx.params[self.spec.tail.field])}).")
            return rest
        if args and any(args[-1] in param.opts and not getattr(param, "is_flag", True) for param in self.params):
            args = args[:-1]  # its value is what is completed: Typer would read no word of a call that ends here
        words, rest, _ = self.make_parser(ctx).parse_args(args)
        for declared in self.get_params(ctx):  # without converting the values
            ctx.params[declared.name], origin = declared.consume_value(ctx, words)
            ctx.set_parameter_source(declared.name, origin)
        return rest

    def _refuse_empty(self, ctx: Any, args: list[str]) -> None:
        """Raise BadParameter for an argument that is an empty word: as a path it would be this folder."""
        values, *_ = self.make_parser(ctx).parse_args(args)
        for declared in self.params:
            if isinstance(declared, TyperArgument) and values[declared.name] == "":
                raise typer.BadParameter("It must not be empty.", ctx, declared)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from sweet.cli.help import command_help

        ctx.color = True  # those of the help are for this terminal already
        formatter.write(command_help(self))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the options, each with the first sentence of its help, in which Typer shall find no markup."""
        items = super().shell_complete(ctx, incomplete)
        for item in items:
            item.help = (item.help or "").partition(". ")[0].replace("[", "\\[")
        return items
