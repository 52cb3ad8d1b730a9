"""Draws the help of the program, of a group of commands and of one command. Examples come first.

Everything is drawn as `Text`, in which markup is not interpreted. On a wide terminal a list has two columns; on a
narrow one the description follows below each word, so that nothing is cut off.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.text import Text

from sweet.cli import console
from sweet.cli.declaration import (
    HELP,
    HELP_ALL,
    LONG,
    Declaration,
    OptionSpec,
    by_topic,
    complete_help,
    env_prefix,
)
from sweet.units import count

MAX_WIDTH = 100
"""Columns of the widest help: longer lines are hard to read."""
DEFAULT_WIDTH = 80
"""Columns in a file or a pipe."""
NARROW = 60
"""Columns below which a list has one column."""
MAX_LEFT_COLUMN = 30
"""Largest width of the left column; the description of a longer word starts on the next line."""

Rows = Iterable[tuple[str, str]]


def program_help(introduction: str, examples: Rows, panels: Mapping[str, Rows]) -> str:
    """Return the help of `sweet`: its commands in panels."""
    out = _console()
    with out.capture() as drawn:
        _usage(out, "sweet COMMAND [OPTIONS] [ARGUMENTS]")
        _examples(out, examples)
        _paragraphs(out, introduction)
        for title, rows in panels.items():
            _list(out, title, rows)
        _list(out, "Options", (("-h, --help", "Show this help."), ("--version", "Print the version.")))
        _paragraphs(out, "sweet COMMAND -h shows the options of a command.")
    return drawn.get().rstrip()


def group_help(name: str, summary: str, rows: Rows) -> str:
    """Return the help of a group of commands."""
    out = _console()
    with out.capture() as drawn:
        _usage(out, f"sweet {name} COMMAND [OPTIONS] [ARGUMENTS]")
        _paragraphs(out, summary)
        _list(out, "Commands", rows)
        _list(out, "Options", (("-h, --help", "Show this help."),))
        _paragraphs(out, f"sweet {name} COMMAND -h shows the options of a command.")
    return drawn.get().rstrip()


def command_help(command: Declaration, *, complete: bool = False) -> str:
    """Return the help of one command.

    Args:
        complete: list every option, by topic, and not only the main ones.
    """
    out = _console()
    with out.capture() as drawn:
        _usage(out, command.usage)
        _examples(out, command.examples)
        _paragraphs(out, command.summary, command.text)
        _list(out, "Arguments", ((argument.metavar, argument.help) for argument in command.positional))
        left_out = len(command.shown) - len(command.main)
        common = command.common
        if left_out and not complete:
            short = by_topic(command.main) if len(command.shown) <= LONG else {"Main options": command.main}
            for title, options in short.items():
                _list(out, title, _options(options))
            _paragraphs(
                out,
                f"sweet {command.name} {HELP_ALL} shows {count(left_out, 'more option')}. The command also has "
                f"{', '.join(option.flag for option in common)}.",
            )
        else:
            for title, options in by_topic(command.shown).items():
                _list(out, title, _options(options))
            _list(out, "Common", [*_options(common), *_help_rows(command)])
            _paragraphs(
                out,
                f"Every option can also be set by a variable named {env_prefix(command.name)}_OPTION, and every option "
                "except the common ones by --config FILE.",
            )
    return drawn.get().rstrip()


def _help_rows(command: Declaration) -> Iterator[tuple[str, str]]:
    short = complete_help(command.options) == HELP_ALL
    yield ", ".join(HELP), "Show the examples and the main options." if short else "Show this help."
    if short:
        yield HELP_ALL, "Show this help."


def _options(options: Iterable[OptionSpec]) -> Iterator[tuple[str, str]]:
    for option in options:
        form = f"{option.flag} / --no-{option.key}" if option.two_sided else f"{option.flag} {option.metavar}".strip()
        yield form + ("…" if option.is_list else ""), " ".join(filter(None, (option.help, _remarks(option))))


def _remarks(option: OptionSpec) -> str:
    """Return the text that follows an option's help: bounds and default."""
    default = _shown_default(option)
    remarks = [option.bounds, "required" if option.required else "", f"default: {default}" if default else ""]
    text = "; ".join(filter(None, remarks))
    return f"({text})" if text else ""


def _shown_default(option: OptionSpec) -> str:
    """Return the default as text; an empty text if there is none to show."""
    if option.is_switch:
        return "on" if option.default else ""
    if isinstance(option.default, list):
        return ", ".join(map(str, option.default))
    return "" if option.default is None else str(option.default)


def _console() -> Console:
    out = console.output_console()
    out.width = min(out.width if out.width < console.UNWRAPPED else DEFAULT_WIDTH, MAX_WIDTH)
    return out


def _usage(out: Console, usage: str) -> None:
    _print(out, f"Usage: {usage}", "bold", hanging=7)


def _examples(out: Console, examples: Rows) -> None:
    for line, what in examples:
        out.print()
        _print(out, f"# {what}", "dim", indent=2, hanging="  # ")
        out.print(Text(folded(line, out.width - 2), "bold"), soft_wrap=True)


def folded(line: str, width: int) -> str:
    """Return a command line wrapped with backslashes, so that it can still be copied."""
    lines = textwrap.wrap(line, width - 4, break_long_words=False, break_on_hyphens=False)
    return "  " + " \\\n      ".join(lines)


def _paragraphs(out: Console, *texts: str) -> None:
    for paragraph in filter(None, "\n\n".join(filter(None, texts)).split("\n\n")):
        out.print()
        _print(out, paragraph)


def _list(out: Console, title: str, rows: Rows) -> None:
    rows = list(rows)
    if not rows:
        return
    out.print()
    _print(out, title, "bold cyan")
    wide = out.width >= NARROW
    left = max((len(word) for word, _ in rows if len(word) <= MAX_LEFT_COLUMN), default=MAX_LEFT_COLUMN)
    indent = 2 + left + 2 if wide else 6
    for word, meaning in rows:
        if wide and len(word) <= left:
            first, _, rest = _wrapped(meaning, out.width - indent).partition("\n")
            out.print(Text("  ").append(word.ljust(indent - 2), "bold").append(first))
            meaning = rest
        else:
            choices = _wrapped(word.replace("|", "| "), out.width, "  ", "    ").replace("| ", "|")
            out.print(Text(choices, "bold"))
        if meaning:
            _print(out, meaning, indent=indent)


def _print(out: Console, text: str, style: str = "", indent: int = 0, hanging: int | str | None = None) -> None:
    """Print a wrapped text.

    Args:
        hanging: the beginning of every line after the first, if it is not the indent.
    """
    below = " " * hanging if isinstance(hanging, int) else hanging
    out.print(Text(_wrapped(text, out.width, " " * indent, below), style))


def _wrapped(text: str, width: int, first: str = "", below: str | None = None) -> str:
    lines = textwrap.wrap(
        text,
        max(width, 10),
        initial_indent=first,
        subsequent_indent=first if below is None else below,
        break_on_hyphens=False,
    )
    return "\n".join(lines)
