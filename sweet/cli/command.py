"""Defines commands: the base class, the common options and one call.

A command consists of a configuration class, a function and its texts. `declare` turns it into plain data, from which
the parser, the help, the completion and the documentation are generated. `sweet.cli.calls` runs a call.
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
    """The options that every command has."""

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
        flags: the options of the command line, as its words.
        run: the run directory, once it is known; the message of an interruption names it.
    """

    command: Command[C]
    config: C
    arguments: dict[str, Any]
    common: Common
    flags: list[str]
    reporter: Reporter
    run: Path | None = None

    def resume_command(self) -> str:
        """Return the command line that resumes this call."""
        words = ["sweet", *self.command.name.split()]
        words += [str(self.run)] if self.run else [str(v) for v in self.arguments.values() if isinstance(v, str | Path)]
        if self.common.config:
            words += ["--config", str(self.common.config)]
        words += self.flags
        if getattr(self.config, "resume", None) is False:
            words = [word for word in words if word != "--no-resume"] + ["--resume"]
        for rest in self.arguments.values():
            words += ["--", *rest] if isinstance(rest, list) and rest else []
        return shlex.join(words)


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[C]):
    """A command: its texts and its configuration. Subclasses define its arguments and its work.

    Attributes:
        name: as typed; a second word makes it a subcommand (`data import`).
        summary: one line for the list of commands.
        text: further paragraphs of the help.
        examples: (command line, description).
    """

    name: str
    config: type[C]
    summary: str
    text: str = ""
    examples: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> list[ArgumentSpec]:
        """Return the positional arguments. One with the name of a configuration field replaces that field's option."""
        return []

    @abstractmethod
    def work(self, call: Call[C]) -> None:
        """Do the work and show the result."""

    def preview(self, call: Call[C]) -> None:
        """Do what `--dry-run` does instead of the work."""
        console.print_json(call.config.model_dump(mode="json"))


def declare(command: Command[Any]) -> Declaration:
    """Return a command's declaration."""
    options = tuple(option_specs(command.config, command.name))
    tail = command.config.behind_dashes()
    help = next((option.help for option in options if option.field == tail), "")
    return Declaration(
        name=command.name,
        summary=command.summary,
        text=command.text,
        examples=command.examples,
        arguments=tuple(command.arguments()),
        tail=ArgumentSpec(tail, "-- VLLM_OPTIONS", help, required=False, is_path=False) if tail else None,
        options=options,
    )
