"""Declarations of commands as plain data: texts, arguments and options.

The parser, the help, the completion and the documentation are generated from declarations. A declaration is made from
the command's configuration class (`sweet.cli.command.declare`) or read from the index (`sweet.cli.index`). This module
does not import the libraries that a configuration needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sweet.topics import TOPICS

HELP = ("-h", "--help")
HELP_ALL = "--help-all"
LONG = 15
"""Options of a command above which `--help` shows only the main ones."""


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
        topic: the heading under which it is listed (`sweet.topics`); empty if it has none.
        main: whether the short help of a command with many options shows it.
        rare: whether only the complete help shows it.
        hidden: whether it is accepted, but neither shown nor completed.
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
    topic: str
    main: bool
    rare: bool
    hidden: bool
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
        long_work: whether it has the options of long work, too (`LONG_WORK`).
    """

    name: str
    summary: str
    text: str
    examples: tuple[tuple[str, str], ...]
    arguments: tuple[ArgumentSpec, ...]
    tail: ArgumentSpec | None
    options: tuple[OptionSpec, ...]
    long_work: bool = False

    @property
    def flags(self) -> list[OptionSpec]:
        """The options that are flags: those whose field is not a positional argument."""
        arguments = {argument.name for argument in self.positional}
        return [option for option in self.options if option.field not in arguments]

    @property
    def shown(self) -> list[OptionSpec]:
        """The flags that the complete help and the documentation list."""
        return [option for option in self.flags if not option.hidden]

    @property
    def main(self) -> list[OptionSpec]:
        """The flags of the short help, in the order of the topics: all but the rare, of a long list the main ones."""
        in_order = [option for options in by_topic(self.shown).values() for option in options]
        return [option for option in in_order if (option.main if len(in_order) > LONG else not option.rare)]

    @property
    def accepted(self) -> list[OptionSpec]:
        """The command's own flags and the common ones."""
        return [*self.flags, *self.common]

    @property
    def common(self) -> list[OptionSpec]:
        """The options that are no field of the configuration."""
        return [_common_option(self.name, *one) for one in (*COMMON, *(LONG_WORK if self.long_work else ()))]

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


def complete_help(options: Iterable[OptionSpec]) -> str:
    """Return the flag of the help that lists every option of a command."""
    shown = [option for option in options if not option.hidden]
    return HELP_ALL if len(shown) > LONG or any(option.rare for option in shown) else HELP[1]


def by_topic(options: Iterable[OptionSpec]) -> dict[str, list[OptionSpec]]:
    """Return options under their headings: those without a topic under "Options", then the topics in their order."""
    options = list(options)
    found = {topic or "Options": [option for option in options if option.topic == topic] for topic in ("", *TOPICS)}
    return {title: members for title, members in found.items() if members}


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

LONG_WORK = (
    ("detach", "", "Go on without the terminal: return when the work has begun, and print how to follow and stop it."),
    (
        "notify",
        "URL",
        "Send a JSON object to this address when the work ends. off: not even the bell of the terminal and the "
        "notification of the desktop, which work of a minute or more ends with.",
    ),
)
"""The options that every stage has besides."""


def _common_option(command: str, key: str, metavar: str, help: str) -> OptionSpec:
    return OptionSpec(
        field=f"common_{key.replace('-', '_')}",
        key=key,
        envvar=f"{env_prefix(command)}_{variable_part(key)}",
        metavar=metavar,
        choices=(),
        is_switch=not metavar,
        is_list=False,
        default=None if metavar else False,
        help=help,
        bounds="",
        required=False,
        operational=False,
        topic="",
        main=False,
        rare=False,
        hidden=False,
        former_key="",
        former_values={},
    )
