"""The options of a command as plain data, and the parameters of Typer that are made from them.

An option is a field of the command's configuration (`sweet.cli.fields`) or one of the common options below.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from sweet.topics import TOPICS

SETTINGS = {"help_option_names": ["-h", "--help"]}
"""Settings of Typer's contexts."""
HELP_ALL = "--help-all"
LONG = 15
"""Options of a command above which `--help` shows only the main ones."""


@dataclass(frozen=True)
class Option:
    """One option of one command.

    Attributes:
        field: the name in the configuration class, and of the parameter.
        envvar: the environment variable.
        metavar: the placeholder of a value in the help.
        choices: the valid values, if the type lists them.
        default: as a JSON value; None if there is none to show.
        bounds: in words; empty if there are none.
        operational: whether it changes how the work is done, not its outcome.
        topic: the heading under which it is listed (`sweet.topics`); empty if it has none.
        main: whether the short help of a command with many options shows it.
        rare: whether only the complete help shows it.
        is_tail: whether it is given by the words after `--` instead of a flag.
    """

    field: str
    envvar: str
    help: str
    metavar: str = ""
    choices: Sequence[str] = ()
    is_switch: bool = False
    is_list: bool = False
    default: Any = None
    bounds: str = ""
    required: bool = False
    operational: bool = False
    topic: str = ""
    main: bool = False
    rare: bool = False
    is_tail: bool = False

    @property
    def key(self) -> str:
        """The name in a configuration file, and without the dashes on the command line."""
        return self.field.removeprefix(_COMMON_FIELD).rstrip("_").replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def flags(self) -> list[str]:
        """The words that give the option: `--nll` and `--no-nll`; a common option can only be turned on."""
        is_common = self.field.startswith(_COMMON_FIELD)
        return [self.flag, f"--no-{self.key}"] if self.is_switch and not is_common else [self.flag]

    def parameter(self, **more: Any) -> inspect.Parameter:
        """Return the parameter of a function from which Typer makes this option. Typer splits words and reads variables
        and defaults; the configuration validates every value, whatever its source.

        Args:
            more: further arguments of `typer.Option`.
        """
        declared = typer.Option(
            "/".join(self.flags),
            help=self.help,
            metavar=self.metavar or None,
            envvar=self.envvar,
            rich_help_panel=self.topic or None,
            show_default=False if self.default is None else str(self.default),
            parser=None if self.is_switch else lambda value: value,
            **more,
        )
        kind: Any = bool if self.is_switch else list[str] if self.is_list else str
        return parameter(self.field, kind | None, declared, default=None)


@dataclass(frozen=True)
class Setting:
    """A value that was given, and its source: `--top-p`, `SWEET_ROLLOUT_TOP_P` or `sweet.toml, key rollout.top-p`."""

    value: Any
    where: str


def parameter(name: str, annotation: Any, declared: Any, **default: Any) -> inspect.Parameter:
    """Return a parameter of a function that is annotated with an option or argument of Typer."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[annotation, declared], **default
    )


def given_as(context: typer.Context, field: str) -> str:
    """Return how the value of a parameter was given: COMMANDLINE, ENVIRONMENT, DEFAULT_MAP (a file), or DEFAULT."""
    source = context.get_parameter_source(field)
    return "DEFAULT" if source is None else source.name


def variable(command: str, key: str) -> str:
    """Return the variable of a command's option: `SWEET_DATA_IMPORT_NUM_TASKS`."""
    return f"SWEET_{command}_{key}".upper().replace("-", "_").replace(" ", "_")


_COMMON_FIELD = "common_"

COMMON = (
    ("config", "PATH", "TOML file of options: one table per command, or keys above the tables."),
    ("dry-run", "", "Print the resolved configuration as JSON, for a stage also its plan, and do nothing."),
    ("json", "", "Print the result as one JSON object."),
    ("quiet", "", "Print only errors on stderr."),
    ("verbose", "", "Also print on stderr the source of each setting, the files read and written, and the time."),
    ("debug", "", "Show the traceback of an error."),
)
"""The options that every command has: key, placeholder of the value, help."""

LONG_WORK = (("notify", "URL", "Send a JSON object to this address when the work ends; off: send none."),)
"""The options that every stage has besides."""


def common_options(command: str, *, long_work: bool) -> list[Option]:
    """Return the options of a command that are no field of its configuration."""
    return [
        Option(
            field=_COMMON_FIELD + key.replace("-", "_"),
            envvar=variable(command, key),
            help=help,
            metavar=metavar,
            is_switch=not metavar,
        )
        for key, metavar, help in (*COMMON, *(LONG_WORK if long_work else ()))
    ]


def main_options(options: Iterable[Option]) -> list[Option]:
    """Return the options of the short help, in the order of the topics: all but the rare, of a long list the main."""
    in_order = [option for members in by_topic(options).values() for option in members]
    return [option for option in in_order if (option.main if len(in_order) > LONG else not option.rare)]


def complete_help(options: Sequence[Option]) -> str:
    """Return the flag of the help that lists every option of a command."""
    return HELP_ALL if len(main_options(options)) < len(options) else "--help"


def by_topic(options: Iterable[Option]) -> dict[str, list[Option]]:
    """Return options under their headings: those without a topic under "Options", then the topics in their order."""
    options = list(options)
    members = {topic or "Options": [option for option in options if option.topic == topic] for topic in ("", *TOPICS)}
    return {title: topic_options for title, topic_options in members.items() if topic_options}
