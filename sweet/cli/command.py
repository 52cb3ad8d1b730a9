"""What a command is, and what all commands share.

A command is declared, not programmed: a configuration class, a function, words. `declare` makes plain data of it, from
which the parser, the help, the completion and the documentation are made. How a call goes from beginning to end stands
in `sweet.cli.calls`.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from sweet.cli import console
from sweet.cli.declaration import ArgumentSpec, Declaration
from sweet.cli.options import C, option_specs
from sweet.stages.base import Reporter


@dataclass(frozen=True)
class Common:
    """The options every command has."""

    config: Path | None
    dry_run: bool
    json: bool
    quiet: bool
    verbose: bool
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

    def arguments(self) -> list[ArgumentSpec]:
        """The positional arguments. One that is named like a field of the configuration takes its option's place."""
        return []

    @abstractmethod
    def work(self, call: Call[C]) -> None:
        """Do it, and show what came out."""

    def foresee(self, call: Call[C]) -> None:
        """What `--dry-run` does in place of the work."""
        console.print_json(call.config.model_dump(mode="json"))


def declare(command: Command[Any]) -> Declaration:
    """What a command says of itself."""
    options = tuple(option_specs(command.config, command.name))
    behind = command.config.behind_dashes()
    help = next((option.help for option in options if option.field == behind), "")
    return Declaration(
        name=command.name,
        summary=command.summary,
        text=command.text,
        examples=command.examples,
        arguments=tuple(command.arguments()),
        tail=ArgumentSpec(behind, "-- VLLM_OPTIONS", help, required=False, is_path=False) if behind else None,
        options=options,
    )
