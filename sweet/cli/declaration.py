"""Declarations of commands as plain data: texts, arguments and options.

The parser, the help, the completion and the documentation are generated from declarations. A declaration is made from
the command's configuration class (`sweet.cli.command.declare`) or read from the index (`sweet.cli.index`). This module
does not import the libraries that a configuration needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class OptionSpec:
    """One option of one command.

    Attributes:
        field: the name in the configuration class.
        key: the name in a configuration file, and without the dashes on the command line.
        envvar: the environment variable.
        metavar: the placeholder of a value in the help.
        choices: the valid values, if the type lists them.
        default: as a JSON value; None if there is none to show.
        bounds: in words; empty if there are none.
        operational: whether it changes how the work is done, not its outcome.
        former_key: the key before the option was renamed; empty if it never was.
        former_values: the current spelling of each value that has been renamed.
    """

    field: str
    key: str
    envvar: str
    metavar: str
    choices: tuple[str, ...]
    is_switch: bool
    is_list: bool
    default: Any
    help: str
    bounds: str
    required: bool
    operational: bool
    former_key: str
    former_values: Mapping[str, str]

    @property
    def former(self) -> OptionSpec | None:
        """The option under its former name, which is accepted and neither shown nor completed."""
        if not self.former_key:
            return None
        prefix = self.envvar.removesuffix(variable_part(self.key))
        return replace(
            self,
            field=f"former_{self.field}",
            key=self.former_key,
            envvar=prefix + variable_part(self.former_key),
            former_key="",
        )

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def flags(self) -> list[str]:
        """The words that give the option: `--nll` and `--no-nll`."""
        return [self.flag, f"--no-{self.key}"] if self.two_sided else [self.flag]

    @property
    def two_sided(self) -> bool:
        """Whether `--no-…` turns it off; the common ones can only be turned on."""
        return self.is_switch and not self.field.startswith("common_")

    def render(self, value: Any) -> list[str]:
        """Return the words of a command line that give the option this value."""
        if self.is_switch:
            return [self.flag if value else f"--no-{self.key}"]
        values = value if isinstance(value, list | tuple) else [value]
        return [word for item in values for word in (self.flag, str(item))]


@dataclass(frozen=True)
class ArgumentSpec:
    """One positional argument.

    Attributes:
        name: the name of its value.
        metavar: its placeholder in the help.
        is_path: whether its value is converted to a path.
    """

    name: str
    metavar: str
    help: str
    required: bool
    is_path: bool = True

    @property
    def shown(self) -> str:
        """Its form in the usage line: `[RUN]` if it is optional."""
        return self.metavar if self.required else f"[{self.metavar}]"


@dataclass(frozen=True)
class Declaration:
    """One command.

    Attributes:
        name: as typed; a second word makes it a subcommand (`data import`).
        summary: one line for the list of commands.
        text: further paragraphs of the help.
        examples: (command line, description).
        arguments: the positional arguments.
        tail: the words after `--`, if the command accepts any.
        options: one for each field of the configuration.
    """

    name: str
    summary: str
    text: str
    examples: tuple[tuple[str, str], ...]
    arguments: tuple[ArgumentSpec, ...]
    tail: ArgumentSpec | None
    options: tuple[OptionSpec, ...]

    @property
    def flags(self) -> list[OptionSpec]:
        """The options that are flags: those whose field is not a positional argument."""
        arguments = {argument.name for argument in self.positional}
        return [option for option in self.options if option.field not in arguments]

    @property
    def accepted(self) -> list[OptionSpec]:
        """The command's own flags and the common ones."""
        return [*self.flags, *common_options(self.name)]

    @property
    def former(self) -> list[OptionSpec]:
        """The options that have been renamed, under their former names."""
        return [former for option in self.flags if (former := option.former) is not None]

    @property
    def positional(self) -> list[ArgumentSpec]:
        return [*self.arguments, *([self.tail] if self.tail else [])]

    @property
    def usage(self) -> str:
        """`sweet rollout [OPTIONS] [RUN] [-- VLLM_OPTIONS]`."""
        words = ["sweet", self.name, "[OPTIONS]", *(argument.shown for argument in self.positional)]
        return " ".join(words)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Declaration:
        """Return the declaration that was serialised with `dataclasses.asdict` as JSON."""
        options = (OptionSpec(**{**item, "choices": tuple(item["choices"])}) for item in value["options"])
        return cls(
            **{
                **value,
                "examples": tuple((line, what) for line, what in value["examples"]),
                "arguments": tuple(ArgumentSpec(**item) for item in value["arguments"]),
                "tail": value["tail"] and ArgumentSpec(**value["tail"]),
                "options": tuple(options),
            }
        )


def env_prefix(command: str) -> str:
    return "SWEET_" + variable_part(command)


def variable_part(words: str) -> str:
    """Return a command or a key as a part of a variable's name: `TRAIN_CRITIC`, `NUM_TASKS`."""
    return words.upper().replace("-", "_").replace(" ", "_")


COMMON = (
    ("config", "PATH", "TOML file of options: one table per command, or keys above the tables."),
    ("dry-run", "", "Print the resolved configuration as JSON, for a stage also its plan, and do nothing."),
    ("json", "", "Print the result as one JSON object."),
    ("quiet", "", "Print only errors on stderr."),
    ("verbose", "", "Also print on stderr the source of each setting, the files read and written, and the time."),
    ("debug", "", "Show the traceback of an error."),
)
"""The options that every command has: key, placeholder of the value, help."""


def common_options(command: str) -> list[OptionSpec]:
    prefix = env_prefix(command)
    return [
        OptionSpec(
            field=f"common_{key.replace('-', '_')}",
            key=key,
            envvar=f"{prefix}_{variable_part(key)}",
            metavar=metavar,
            choices=(),
            is_switch=not metavar,
            is_list=False,
            default=None if metavar else False,
            help=help,
            bounds="",
            required=False,
            operational=False,
            former_key="",
            former_values={},
        )
        for key, metavar, help in COMMON
    ]
