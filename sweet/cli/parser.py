"""The command line as Typer parses it, made from declarations when a command is asked for.

Looking (help, completion) goes by the index, which costs no import; a call goes by the command's own module, which is
imported then and is the only one. Typer makes each command from a signature that is put together here, and takes words
apart: which values are right is decided by the configuration (`sweet.cli.options.resolve`), and help is drawn by
`sweet.cli.help`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from sweet.cli import candidates
from sweet.cli.declaration import ArgumentSpec, Declaration, OptionSpec, common_options
from sweet.cli.typer_internals import Command as Parsed
from sweet.cli.typer_internals import CompletionItem, Context, NoSuchOption, Parameter, ParameterSource, TakesAsTyped
from sweet.errors import UsageError
from sweet.suggestions import did_you_mean

if TYPE_CHECKING:
    from sweet.cli.command import Command

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "color": True}
"""Of every context. rich decides whether there is colour; Typer must not take it away again."""

APP: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "context_settings": SETTINGS}
"""Of every Typer app: completion and help are our own."""


@dataclass(frozen=True)
class CommandLine:
    """The commands there are, and where they come from.

    Attributes:
        panels: first words of commands by the title they stand under in the help, in its order.
        summaries: one line for each command, by its name.
        load: the command of a name; KeyError where there is none.
        kept: the declaration of a command for those who only look; without it, it is made from the command.
        groups: what the commands with a common first word are for, by that word.
        introduction, examples: the first words of the help.
    """

    panels: Mapping[str, Sequence[str]]
    summaries: Mapping[str, str]
    load: Callable[[str], Command[Any]]
    kept: Callable[[str], Declaration] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    introduction: str = ""
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def first_words(self) -> list[str]:
        return [word for words in self.panels.values() for word in words]

    def members(self, group: str | None) -> dict[str, str]:
        """Summaries of a group's commands by their second word, or of what there is by the first."""
        if group is None:
            return {word: self.groups.get(word) or self.summaries.get(word, "") for word in self.first_words}
        return {name.split()[1]: text for name, text in self.summaries.items() if name.startswith(f"{group} ")}

    def declaration(self, name: str, *, looking: bool) -> Declaration:
        """Raises KeyError where there is no such command."""
        if looking and self.kept is not None and name in self.summaries:
            return self.kept(name)
        from sweet.cli.command import declare

        return declare(self.load(name))


class Group(TakesAsTyped, TyperGroup):
    """Commands below a word: those of `sweet`, or of `sweet data`.

    Attributes:
        word: the first word of its commands; None for `sweet`.
        looking: whether nothing will be done: help is asked for, or words to complete with.
    """

    line: CommandLine
    word: str | None
    looking: bool

    @classmethod
    def of(cls, line: CommandLine, word: str | None = None, *, looking: bool) -> Group:
        app = typer.Typer(name=word or "sweet", cls=cls, **APP)
        app.callback(invoke_without_command=True)(_group if word else _program)
        group = get_command(app)
        assert isinstance(group, Group)
        group.line, group.word, group.looking = line, word, looking
        return group

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.line.members(self.word))

    def get_command(self, ctx: Context, name: str) -> Parsed | None:
        if self.word is None and name in self.line.groups:
            return Group.of(self.line, name, looking=self.looking)
        if self.word is None and name not in self.line.first_words:
            return None
        try:
            full = name if self.word is None else f"{self.word} {name}"
            return Leaf.of(self.line, self.line.declaration(full, looking=self.looking))
        except KeyError:
            return None

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Parsed | None, list[str]]:
        found = self.get_command(ctx, args[0])
        if found is None and not ctx.resilient_parsing:
            raise unknown_command(ctx.command_path, args[0], self.list_commands(ctx))
        return args[0], found, args[1:]

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        members = self.line.members(self.word).items()
        items = [CompletionItem(name, help=text) for name, text in members if name.startswith(incomplete)]
        return items + Parsed.shell_complete(self, ctx, incomplete)

    def get_help(self, ctx: Context) -> str:
        from sweet.cli import help

        members = self.line.members(self.word)
        if self.word is not None:
            return help.of_group(self.word, self.line.groups[self.word], members.items())
        panels = {title: [(word, members[word]) for word in words] for title, words in self.line.panels.items()}
        return help.of_program(self.line.introduction, self.line.examples, panels)


class Leaf(TakesAsTyped, TyperCommand):
    """One command. What follows `--` goes to its tail, and nothing else does.

    The usual parser forgets where the `--` stood, and would take the first word after it for a RUN that was left out.
    """

    declaration: Declaration

    @classmethod
    def of(cls, line: CommandLine, declaration: Declaration) -> Leaf:
        app = typer.Typer(**APP)
        app.command(declaration.name, cls=cls, context_settings=SETTINGS)(_callback(line, declaration))
        leaf = get_command(app)
        assert isinstance(leaf, Leaf)
        leaf.declaration = declaration
        return leaf

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        tail = self.declaration.tail
        if ctx.resilient_parsing:  # an option whose value is being typed would keep the arguments from being read
            return super().parse_args(ctx, args[:-1] if self._wants_value(args) else args)
        if tail is None:
            return super().parse_args(ctx, args)
        at = args.index("--") if "--" in args else len(args)
        behind = tuple(args[at + 1 :])
        rest = super().parse_args(ctx, args[:at])
        if stray := ctx.params.get(tail.name):
            ctx.fail(f"Got unexpected extra argument ({' '.join(stray)}); vllm's options go behind --.")
        if behind:
            ctx.params[tail.name] = behind
            ctx.set_parameter_source(tail.name, ParameterSource.COMMANDLINE)
        return rest

    def _wants_value(self, args: list[str]) -> bool:
        options = [param for param in self.params if isinstance(param, TyperOption) and not param.is_flag]
        return bool(args) and any(args[-1] in option.opts for option in options)

    def get_help(self, ctx: Context) -> str:
        from sweet.cli import help

        return help.of_command(self.declaration)


def unknown_command(parent: str, word: str, known: Sequence[str]) -> UsageError:
    """The error for a word that is no command."""
    return UsageError(
        f"{parent} has no command {word}.{did_you_mean(word, known)}", fix=f"{parent} --help shows the commands"
    )


def unknown_option(error: NoSuchOption) -> UsageError:
    """The error for an option that a command does not have."""
    path, known = "sweet", []
    if error.ctx is not None:
        path = error.ctx.command_path
        flags = [flag for param in error.ctx.command.get_params(error.ctx) for flag in _flags(param)]
        known = [flag.removeprefix("--") for flag in flags if flag.startswith("--")]
    return UsageError(
        f"{path} has no option {error.option_name}.{did_you_mean(error.option_name.lstrip('-'), known, '--')}",
        fix=f"{path} --help shows what is allowed",
    )


def _flags(param: Parameter) -> list[str]:
    return [*param.opts, *param.secondary_opts] if isinstance(param, TyperOption) else []


def _program(ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from sweet import __version__

        typer.echo(f"sweet {__version__}")
        raise typer.Exit
    _group(ctx)


def _group(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _callback(line: CommandLine, declaration: Declaration) -> Callable[..., int]:
    """What Typer makes the command from: a function whose signature has a parameter for each argument and option."""

    def callback(ctx: typer.Context, **values: Any) -> int:
        from sweet.cli.calls import call

        sources = {name: ctx.get_parameter_source(name) for name in values}
        return call(line, declaration, values, {n: s.name for n, s in sources.items() if s is not None})

    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    parameters = [context, *_parameters(declaration)]
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return callback


def _parameters(declaration: Declaration) -> list[inspect.Parameter]:
    arguments = [_argument(argument, declaration) for argument in declaration.arguments]
    tail = [_parameter(declaration.tail.name, list[str] | None, typer.Argument(None))] if declaration.tail else []
    options = [*declaration.flags, *common_options(declaration.name)]
    return [*arguments, *tail, *(_option(option, declaration) for option in options)]


def _parameter(name: str, annotation: Any, declared: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)


def _argument(argument: ArgumentSpec, declaration: Declaration) -> inspect.Parameter:
    declared = typer.Argument(
        ... if argument.required else None,
        metavar=argument.metavar,
        autocompletion=candidates.of_argument(declaration, argument),
    )
    return _parameter(argument.name, str if argument.required else str | None, declared)


def _option(option: OptionSpec, declaration: Declaration) -> inspect.Parameter:
    """To Typer every value is text, or a switch."""
    declared = typer.Option(
        False if option.is_switch else None,
        f"{option.flag}/--no-{option.key}" if option.two_sided else option.flag,
        envvar=option.envvar,
        help=option.help,
        metavar=option.metavar or None,
        autocompletion=None if option.is_switch else candidates.of_option(declaration, option),
    )
    kind = bool if option.is_switch else list[str] | None if option.is_list else str | None
    return _parameter(option.field, kind, declared)
