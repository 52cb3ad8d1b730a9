"""Defines commands: the base class, the common options and one call.

A command consists of a configuration class, a function and its texts. `declare` turns it into plain data, from which
the parser, the help, the completion and the documentation are generated. `sweet.cli.calls` runs a call.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from sweet.cli import console
from sweet.cli.declaration import ArgumentSpec, Declaration
from sweet.cli.options import C, option_specs
from sweet.stages.base import Reporter


@dataclass(frozen=True)
class Common:
    """The options that every command has, and those of long work."""

    config: Path | None
    dry_run: bool
    json: bool
    quiet: bool
    verbose: bool
    debug: bool
    detach: bool = False
    notify: str | None = None


@dataclass
class Call(Generic[C]):
    """One call of a command.

    Attributes:
        arguments: the positional arguments, by name.
        flags: the options of the command line, as its words.
        run: the run directory, once it is known; the message of an interruption names it.
        notify: the address that is notified of the end of the work, once it is checked.
    """

    command: Command[C]
    config: C
    arguments: dict[str, Any]
    common: Common
    flags: list[str]
    reporter: Reporter
    run: Path | None = None
    notify: str | None = None

    def resume_command(self) -> str:
        """Return the command line that resumes this call: that of `Command.resuming`, or this call again."""
        if (known := self.command.resuming(self)) is not None:
            return known
        resume = ["--resume"] if getattr(self.config, "resume", None) is False else []
        words = self.words(resume)
        return shlex.join(["sweet", *(word for word in words if not resume or word != "--no-resume")])

    def words(self, more: Sequence[str] = ()) -> list[str]:
        """Return the words of this call behind `sweet`, on the run that is known now, with more options."""
        words = self.command.name.split()
        words += [str(self.run)] if self.run else [str(v) for v in self.arguments.values() if isinstance(v, str | Path)]
        if self.common.config:
            words += ["--config", str(self.common.config)]
        words += [*self.flags, *more]
        for rest in self.arguments.values():
            words += ["--", *rest] if isinstance(rest, list) and rest else []
        return words


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[C]):
    """A command: its texts and its configuration. Subclasses define its arguments and its work.

    Attributes:
        name: as typed; a second word makes it a subcommand (`data import`).
        summary: one line for the list of commands.
        text: further paragraphs of the help.
        examples: (command line, description).
        long_work: whether it does the work of a stage, which may be detached and notifies of its end.
    """

    name: str
    config: type[C]
    summary: str
    text: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    long_work: bool = False

    def arguments(self) -> list[ArgumentSpec]:
        """Return the positional arguments. One with the name of a configuration field replaces that field's option."""
        return []

    @abstractmethod
    def work(self, call: Call[C]) -> None:
        """Do the work and show the result."""

    def detach(self, call: Call[C]) -> None:
        """Do what `--detach` does instead of the work."""
        raise NotImplementedError

    def resuming(self, call: Call[C]) -> str | None:
        """Return a shorter command line than the same call again that resumes an interrupted one; None without one."""
        return None

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
        long_work=command.long_work,
    )
