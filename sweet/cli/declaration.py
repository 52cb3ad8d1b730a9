"""What a command says of itself, as plain data: its words, arguments and options.

The parser, the help, the completion and the documentation are all made from declarations. A declaration is made from
the command's configuration class (`sweet.cli.command.declare`), or read from the index, where all of them are kept
(`sweet.cli.index`). So this module imports none of the libraries that a configuration needs.
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
        metavar: what the help shows for a value.
        choices: the values there are, where the type says them.
        default: as JSON has it; None where there is none to show.
        bounds: in words, empty where there are none.
        operational: whether it changes how the work is done, not what comes out.
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
        """Whether `--no-…` switches it off; the common ones are only switched on."""
        return self.is_switch and not self.field.startswith("common_")

    def render(self, value: Any) -> list[str]:
        """The option as words of a command line that give it this value."""
        if self.is_switch:
            return [self.flag if value else f"--no-{self.key}"]
        values = value if isinstance(value, list | tuple) else [value]
        return [word for item in values for word in (self.flag, str(item))]


@dataclass(frozen=True)
class ArgumentSpec:
    """One positional argument.

    Attributes:
        name: of the value that the command gets.
        metavar: what the help shows.
        is_path: whether the command gets it as a path.
    """

    name: str
    metavar: str
    help: str
    required: bool
    is_path: bool = True

    @property
    def shown(self) -> str:
        """As the usage line shows it: `[RUN]` where it may be left out."""
        return self.metavar if self.required else f"[{self.metavar}]"


@dataclass(frozen=True)
class Declaration:
    """One command.

    Attributes:
        name: as typed; a second word makes it a subcommand (`data import`).
        summary: one line for the list of commands.
        text: further paragraphs of the help.
        examples: (command line, what it does).
        arguments: the positional ones.
        tail: what follows `--`, where something may.
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
        """The options that are given as such: those whose place no argument takes."""
        taken = {argument.name for argument in self.positional}
        return [option for option in self.options if option.field not in taken]

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
        """What `dataclasses.asdict` gave, and JSON kept."""
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
    ("config", "PATH", "TOML file of options: a table a command, or keys above the tables."),
    ("dry-run", "", "Print the resolved configuration as JSON, of a stage also the work that it has, and do nothing."),
    ("json", "", "Print the result as one JSON object."),
    ("quiet", "", "Say nothing on stderr but errors."),
    ("verbose", "", "Say more on stderr: where each setting came from, what was read and written, how long it took."),
    ("debug", "", "Show the traceback of an error."),
)
"""The options that every command has: key, what stands for the value, help."""


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
