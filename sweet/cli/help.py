"""Draws the help of the program, of a group of commands and of one command. Examples come first.

Everything is drawn as `Text`, in which markup is not interpreted. On a wide terminal a list has two columns; on a
narrow one the description follows below each word, so that nothing is cut off. `--help --json` prints the same as data.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from sweet.cli import console
from sweet.cli.options import HELP_ALL, LONG, Option, by_topic, complete_help, main_options, variable
from sweet.cli.spec import Spec
from sweet.installation import VERSION
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


def group_help(path: str, examples: Rows, introduction: str, panels: Mapping[str, Mapping[str, str]], own: Rows) -> str:
    """Return the help of the program or of a group: its commands in panels.

    Args:
        own: the group's own options.
    """
    out = _console()
    with out.capture() as drawn:
        _usage(out, f"{path} COMMAND [OPTIONS] [ARGUMENTS]")
        _examples(out, examples)
        _paragraphs(out, introduction)
        for title, commands in panels.items():
            _list(out, title, commands.items())
        _list(out, "Options", own)
        _paragraphs(out, f"{path} COMMAND -h shows the options of a command.")
    return drawn.get().rstrip()


def command_help(command: Any, *, complete: bool = False) -> str:
    """Return the help of one command.

    Args:
        command: a `sweet.cli.command.Command`.
        complete: list every option, by topic, and not only the main ones.
    """
    spec: Spec = command.spec
    out = _console()
    with out.capture() as drawn:
        _usage(out, usage(command))
        _examples(out, spec.examples)
        _paragraphs(out, spec.summary, spec.text)
        _list(out, "Arguments", ((arg.metavar, arg.help) for arg in positional(command)))
        main = main_options(spec.flags)
        left_out = len(spec.flags) - len(main)
        if left_out and not complete:
            short = by_topic(main) if len(spec.flags) <= LONG else {"Main options": main}
            for title, options in short.items():
                _list(out, title, _options(options))
            _paragraphs(
                out,
                f"sweet {spec.name} {HELP_ALL} shows {count(left_out, 'more option')}. The command also has "
                f"{', '.join(option.flag for option in spec.common)}.",
            )
        else:
            for title, options in by_topic(spec.flags).items():
                _list(out, title, _options(options))
            _list(out, "Common", [*_options(spec.common), *_help_rows(spec)])
            _paragraphs(
                out,
                f"Every option can also be set by a variable named {variable(spec.name, 'option')}, and every option "
                "except the common ones by --config FILE.",
            )
    return drawn.get().rstrip()


def positional(command: Any) -> list[Any]:
    """Return the arguments of a command that are no options."""
    return [arg for arg in command.params if arg.param_type_name == "argument"]


def usage(command: Any) -> str:
    """Return `sweet rollout [OPTIONS] [RUN] [-- VLLM_OPTIONS]`."""
    words = [str(arg.metavar) if arg.required else f"[{arg.metavar}]" for arg in positional(command)]
    return " ".join(["sweet", command.spec.name, "[OPTIONS]", *words])


def _help_rows(spec: Spec) -> Iterator[tuple[str, str]]:
    short = complete_help(spec.flags) == HELP_ALL
    yield "-h, --help", "Show the examples and the main options." if short else "Show this help."
    if short:
        yield HELP_ALL, "Show this help."


def _options(options: Iterable[Option]) -> Iterator[tuple[str, str]]:
    for option in options:
        form = " / ".join(option.flags) if option.is_switch else f"{option.flag} {option.metavar}"
        yield form + ("…" if option.is_list else ""), " ".join(filter(None, (option.help, _remarks(option))))


def _remarks(option: Option) -> str:
    """Return the text that follows an option's help: bounds and default."""
    default = _shown_default(option)
    remarks = [option.bounds, "required" if option.required else "", f"default: {default}" if default else ""]
    text = "; ".join(filter(None, remarks))
    return f"({text})" if text else ""


def _shown_default(option: Option) -> str:
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
    _print(out, usage, "bold", "Usage: ", " " * 7)


def _examples(out: Console, examples: Rows) -> None:
    for line, what in examples:
        out.print()
        _print(out, what, "dim", "  # ")
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
            _print(out, meaning, first=" " * indent)


def _print(out: Console, text: str, style: str = "", first: str = "", below: str | None = None) -> None:
    """Print a wrapped text: `first` begins its first line, and `below` or else the same the others."""
    out.print(Text(_wrapped(text, out.width, first, below), style))


def _wrapped(text: str, width: int, first: str = "", below: str | None = None) -> str:
    below = first if below is None else below
    return textwrap.fill(text, max(width, 10), initial_indent=first, subsequent_indent=below, break_on_hyphens=False)


_OF_OPTION = ("help", "metavar", "choices", "is_switch", "is_list", "bounds", "required", "operational", "topic")


def print_reference(commands: Iterable[Any]) -> int:
    """Print commands as one object. Of an option, what is empty or false is left out."""
    console.print_json({"version": VERSION, "commands": [_described(command) for command in commands]})
    return 0


def _described(command: Any) -> dict[str, Any]:
    spec: Spec = command.spec
    options = (
        {"flags": option.flags, "default": option.default, "variable": option.envvar}
        | {key: value for key in _OF_OPTION if (value := getattr(option, key))}
        for option in (*spec.flags, *spec.common)
    )
    arguments = ({"name": arg.metavar, "help": arg.help, "required": arg.required} for arg in positional(command))
    return {
        **{"command": f"sweet {spec.name}", "usage": usage(command), "summary": spec.summary, "text": spec.text},
        "examples": [{"command": line, "shows": what} for line, what in spec.examples],
        **{"arguments": list(arguments), "options": list(options)},
    }
