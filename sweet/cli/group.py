"""The groups of commands: their help, their completion, and the words that are no command of theirs.

A group knows the names and summaries of its commands. It imports the module of a command when the command is called,
its help is asked for, or one of its words is completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from typer.core import TyperCommand, TyperGroup

from sweet import collector
from sweet.cli.options import SETTINGS, Option
from sweet.cli.summaries import EXAMPLES, GROUPS, INTRODUCTION, SUMMARIES
from sweet.runs.stages import stage_named


class Group(TyperGroup):
    """The program, or those of its commands that have the same first word (`GROUPS`)."""

    summaries: Mapping[str, Mapping[str, str]] = SUMMARIES
    """The summary of each command of the program, by the title under which the help lists it."""

    def load(self, name: str) -> Any:
        """Return the command of the program with a name; None if there is none."""
        return load(name) if name in GROUPS or name in self.names() else None

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all commands of the program, in the order of the help."""
        return [name for members in cls.summaries.values() for name in members]

    @classmethod
    def begun_by(cls, words: Sequence[str]) -> list[str]:
        """Return the name of the command that a call is of; those of all commands if it is of none."""
        named = [name for name in cls.names() if name.split() == list(words[: len(name.split())])]
        return named or cls.names()

    def panels(self) -> dict[str, dict[str, str]]:
        """Return the summary of each command of the group, by the title under which the help lists it."""
        panels: dict[str, dict[str, str]] = {}
        for title, members in self.summaries.items():
            for name, summary in members.items():
                if name.startswith(self._first_word):
                    word = name.removeprefix(self._first_word).split()[0]
                    panel = panels.setdefault("Commands" if self._first_word else title, {})
                    panel[word] = GROUPS.get(word, summary)
        return panels

    @property
    def _first_word(self) -> str:
        return f"{self.name} " if self.name in GROUPS else ""

    def options(self, name: str, *, common: bool = False) -> list[Option]:
        """Return the options of a command of the program.

        Args:
            common: return the options that are no field of the configuration, too.
        """
        spec = self.load(name).spec
        return [*spec.options, *spec.common] if common else list(spec.options)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, switches that are off: Typer would import pydantic to convert None."""
        params = super().get_params(ctx)
        for declared in params:
            declared.default = declared.default or False
        return params

    def list_commands(self, ctx: Any) -> list[str]:
        return [word for words in self.panels().values() for word in words]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command for lists of commands, which has a name and a summary only."""
        summaries = {word: summary for words in self.panels().values() for word, summary in words.items()}
        return TyperCommand(cmd_name, short_help=summaries[cmd_name]) if cmd_name in summaries else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of a command, the command, and the words that follow its name."""
        word, rest = args[0], args[1:]
        command = self.load(self._first_word + word)
        if command is None and not ctx.resilient_parsing:
            from sweet.cli.errors import unknown_command

            raise unknown_command(ctx.command_path, word, self.list_commands(ctx))
        return None if command is None else word, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with collector.paused():
            from sweet.cli.help import group_help

        ctx.color = True  # those of the help are for this terminal already
        options = ((", ".join(option.opts), option.help or "") for option in self.get_params(ctx))
        introduction, examples = GROUPS.get(self.name or "", INTRODUCTION), () if self._first_word else EXAMPLES
        formatter.write(group_help(ctx.command_path, examples, introduction, self.panels(), options))


@cache
def load(name: str) -> Any:
    """Return the command or the group with a name, importing no other module of commands."""
    if name in GROUPS:
        return Group(name=name, context_settings=SETTINGS)
    module = "stages" if stage_named(name) is not None else name.split()[0].replace("-", "_")
    with collector.paused():
        import_module(f"sweet.cli.commands.{module}")
        from sweet.cli.command import SPECS, made_of

        return made_of(SPECS[name])
