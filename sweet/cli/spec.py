"""What a command is made of, and one call of it.

The options of a command are stored in the user's cache folder. Reading them from the fields of the configuration
imports pydantic and what the configuration imports. `import typer, rich` and one model of pydantic already take twice
the time of `import typer, rich` alone, which is most of what a help or a completion may take. So they are stored when
they are first read, with the modification times of the modules that had been imported, until one of these changes.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from sweet.cli.options import Option, common_options, parameter
from sweet.cli.summaries import SUMMARIES
from sweet.paths import cache_folder

if TYPE_CHECKING:
    from sweet.runs.stages import Stage
    from sweet.stages.base import Reporter

C = TypeVar("C")

SEPARATOR = "--"
"""The word after which a command with a tail takes everything as its tail."""
TAIL = "sweet.tail"
"""The key of a context under which its tail is."""


@dataclass(frozen=True)
class Spec:
    """What a command is made of.

    Attributes:
        name: as typed; a second word makes it a subcommand (`data import`).
        configuration: the class of its configuration, as `module:class`.
        function: does the work and shows the result.
        text: further paragraphs of the help.
        examples: (command line, description).
        stage: the stage of the pipeline that it is; None of another command.
        is_stage: whether its function does what `--dry-run` asks for, with the plan of a stage.
        long_work: whether it notifies of its end.
    """

    name: str
    configuration: str
    function: Callable[..., None]
    text: str
    examples: Sequence[tuple[str, str]]
    stage: Stage | None
    is_stage: bool
    long_work: bool

    @property
    def summary(self) -> str:
        """The first sentence of the help."""
        return next((members[self.name] for members in SUMMARIES.values() if self.name in members), "")

    @cached_property
    def options(self) -> list[Option]:
        """One option for each field of the configuration, in their order."""
        installation = zlib.crc32(f"{Path(__file__).parent} {self.configuration}".encode())
        stored = cache_folder("options") / f"{self.name.replace(' ', '-')}-{installation:08x}.json"
        is_imported = self.configuration.partition(":")[0] in sys.modules
        if not is_imported:
            with suppress(OSError, ValueError, TypeError, KeyError):
                content = json.loads(stored.read_bytes())
                if all(_stamp(file) == stamp for file, stamp in content["files"].items()):
                    return [Option(**option) for option in content["options"]]
        from sweet.cli.fields import options_of_class

        options = options_of_class(resolve_name(self.configuration), self.name)
        if not is_imported:
            _store(stored, options)
        return options

    @property
    def tail(self) -> Option | None:
        """The option that receives the words after `--`, if the command accepts any."""
        return next((option for option in self.options if option.is_tail), None)

    @property
    def flags(self) -> list[Option]:
        """The options that are flags: those whose field is not a positional argument."""
        return [option for option in self.options if option.field not in self.arguments]

    @property
    def common(self) -> list[Option]:
        return common_options(self.name, long_work=self.long_work)

    @cached_property
    def positional(self) -> dict[str, inspect.Parameter]:
        """The parameters of the function that are positional arguments."""
        return dict(list(inspect.signature(self.function).parameters.items())[1:])

    @cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """The positional arguments and the tail."""
        parameters = dict(self.positional)
        if self.tail is not None:
            declared = typer.Argument(metavar="-- VLLM_OPTIONS", help=self.tail.help, parser=str)
            parameters[self.tail.field] = parameter(self.tail.field, list[str] | None, declared, default=None)
        return parameters


def _store(stored: Path, options: Iterable[Option]) -> None:
    """Write the options of a command into the cache, unless the folder is not writable."""
    from sweet.files import write_whole

    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "sweet"]
    files = sorted({file for module in modules if (file := getattr(module, "__file__", None)) is not None})
    content = {"files": {file: _stamp(file) for file in files}, "options": [asdict(option) for option in options]}
    with suppress(OSError):
        stored.parent.mkdir(parents=True, exist_ok=True)
        write_whole(stored, json.dumps(content).encode())


def _stamp(file: str) -> list[int]:
    status = os.stat(file)  # noqa: PTH116 (a hundred files while somebody types)
    return [status.st_mtime_ns, status.st_size]


@dataclass(frozen=True)
class Common:
    """The options that every command has, and those of long work."""

    config: Path | None
    dry_run: bool
    json: bool
    quiet: bool
    verbose: bool
    debug: bool
    notify: str | None = None


@dataclass
class Call(Generic[C]):
    """One call of a command.

    Attributes:
        arguments: the positional arguments and the tail, by name.
        flags: the options of the command line, as its words.
        run: the run directory, once it is known; the message of an interruption names it.
        notify: the address that is notified of the end of the work, once it is checked.
        resuming: returns a shorter command line than the same call again that resumes it; None without one.
    """

    spec: Spec
    config: C
    arguments: dict[str, Any]
    common: Common
    flags: list[str]
    reporter: Reporter
    run: Path | None = None
    notify: str | None = None
    resuming: Callable[[], str | None] = field(default=lambda: None)

    def resume_command(self) -> str:
        """Return the command line that resumes this call: that of `resuming`, or this call again."""
        if (command := self.resuming()) is not None:
            return command
        resume = ["--resume"] if getattr(self.config, "resume", None) is False else []
        words = self.words(resume)
        return shlex.join(["sweet", *(word for word in words if not resume or word != "--no-resume")])

    def words(self, more: Sequence[str] = ()) -> list[str]:
        """Return the words of this call behind `sweet`, on the run that is known now, with more options."""
        words = self.spec.name.split()
        words += [str(self.run)] if self.run else [str(v) for v in self.arguments.values() if isinstance(v, str | Path)]
        if self.common.config:
            words += ["--config", str(self.common.config)]
        words += [*self.flags, *more]
        for rest in self.arguments.values():
            words += [SEPARATOR, *rest] if isinstance(rest, list) and rest else []
        return words
