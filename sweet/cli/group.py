"""The groups of commands: their help, their completion, and the words that are no command of theirs.

A group knows the names and summaries of its commands. It imports the module of a command when the command is called,
its help is asked for, or one of its words is completed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sweet import collector
from sweet.cli.options import Option
from sweet.cli.summaries import EXAMPLES, GROUPS, INTRODUCTION, SUMMARIES

SETTINGS = {"help_option_names": ["-h", "--help"]}
"""Settings of Typer's contexts."""

Words = tuple[str | None, Any, list[str]]
"""The name of a command, the command, and the words that follow its name."""


class Group(TyperGroup):
    """A group whose commands are there, as the functions of a `typer.Typer`."""

    introduction = ""
    examples: Sequence[tuple[str, str]] = ()

    def panels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the summary of each command of the group, by the title under which the help lists it."""
        return {"Commands": {name: command.short_help or "" for name, command in self.commands.items()}}

    def load(self, word: str) -> Any:
        """Return the command with a name; None if there is none."""
        return self.commands.get(word)

    def names(self) -> list[str]:
        """Return the names of all commands of the program."""
        return list(self.commands)

    def options(self, name: str, *, common: bool = False) -> list[Option]:
        """Return the options of a command of the program.

        Args:
            common: return the options that are no field of the configuration, too.
        """
        spec = self.load(name).spec
        return [*spec.options, *spec.common] if common else list(spec.options)

    def name_of(self, context: typer.Context) -> str:
        """Return the name of the command that is called."""
        return context.command_path.partition(" ")[2]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, switches that are off: Typer would import pydantic to convert None."""
        found = super().get_params(ctx)
        for declared in found:
            declared.default = declared.default or False
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        return [word for words in self.panels().values() for word in words]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command for lists of commands, which has a name and a summary only."""
        summaries = {word: summary for words in self.panels().values() for word, summary in words.items()}
        return TyperCommand(cmd_name, short_help=summaries[cmd_name]) if cmd_name in summaries else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Words:
        word, rest = args[0], args[1:]
        command = self.load(word)
        if command is None and not ctx.resilient_parsing:
            from sweet.cli.errors import unknown_command

            raise unknown_command(ctx.command_path, word, self.list_commands(ctx))
        return None if command is None else word, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with collector.paused():
            from sweet.cli.help import group_help

        ctx.color = True  # those of the help are for this terminal already
        own = ((", ".join(one.opts), one.help or "") for one in self.get_params(ctx))
        formatter.write(group_help(ctx.command_path, self.examples, self.introduction, self.panels(), own))


class LazyGroup(Group):
    """A group of the commands in `sweet.cli.commands`: all of the program, or those with the same first word."""

    @property
    def _first_word(self) -> str:
        return f"{self.name} " if self.name in GROUPS else ""

    @property
    def introduction(self) -> str:  # type: ignore[override]
        return GROUPS.get(self.name or "", INTRODUCTION)

    @property
    def examples(self) -> Sequence[tuple[str, str]]:  # type: ignore[override]
        return () if self._first_word else EXAMPLES

    def panels(self) -> Mapping[str, Mapping[str, str]]:
        if prefix := self._first_word:
            members = {name: text for texts in SUMMARIES.values() for name, text in texts.items()}
            return {
                "Commands": {name.removeprefix(prefix): s for name, s in members.items() if name.startswith(prefix)}
            }
        return {title: dict(map(_first, members.items())) for title, members in SUMMARIES.items()}

    def load(self, word: str) -> Any:
        name = self._first_word + word
        return load(name) if name in GROUPS or name in self.names() else None

    def names(self) -> list[str]:
        return list(names())


def _first(member: tuple[str, str]) -> tuple[str, str]:
    """Return the first word of a command with its summary, or that of its group."""
    word = member[0].split()[0]
    return word, GROUPS.get(word, member[1])


def names() -> Iterator[str]:
    """Yield the names of the program's commands, in the order of the help."""
    for members in SUMMARIES.values():
        yield from members


@cache
def load(name: str) -> Any:
    """Return the command or the group with a name, importing no other module of commands."""
    if name in GROUPS:
        group = typer.Typer(name=name, cls=LazyGroup, add_completion=False)
        group.callback()(lambda: None)
        return get_command(group)
    first, *rest = name.split()
    with collector.paused():
        module = import_module(f"sweet.cli.commands.{first.replace('-', '_')}")
        found: Any = get_command(module.app)
    return found.commands[rest[0]] if rest else found
