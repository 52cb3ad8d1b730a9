"""The help: of the program, of a group of commands, of one command. Examples come first.

Everything is drawn as `Text`, in which nothing is read as markup. Wide enough, a list has two columns; on a narrow
terminal what a word means stands under it, so that nothing is cut off or squeezed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.text import Text

from sweet.cli import console
from sweet.cli.declaration import Declaration, OptionSpec, common_options, env_prefix

WIDEST = 100
"""Columns of the widest help: longer lines are hard to read."""
UNKNOWN = 80
"""Columns where nobody says how many there are."""
NARROW = 60
"""Columns below which a list has one column."""
WORDS = 30
"""Columns of the widest left column; a longer word pushes what it means to the next line."""

OPERATIONAL_PANEL = "How it is run (the outcome stays the same)"

Rows = Iterable[tuple[str, str]]


def of_program(introduction: str, examples: Rows, panels: Mapping[str, Rows]) -> str:
    """The help of `sweet`: its commands in panels."""
    out = _console()
    with out.capture() as drawn:
        _usage(out, "sweet COMMAND [OPTIONS] [ARGUMENTS]")
        _examples(out, examples)
        _paragraphs(out, introduction)
        for title, rows in panels.items():
            _list(out, title, rows)
        _list(out, "Options", (("-h, --help", "Show this help."), ("--version", "Print the version.")))
        _paragraphs(out, "sweet COMMAND -h shows what a command takes.")
    return drawn.get().rstrip()


def of_group(name: str, summary: str, rows: Rows) -> str:
    """The help of a group of commands."""
    out = _console()
    with out.capture() as drawn:
        _usage(out, f"sweet {name} COMMAND [OPTIONS] [ARGUMENTS]")
        _paragraphs(out, summary)
        _list(out, "Commands", rows)
        _list(out, "Options", (("-h, --help", "Show this help."),))
        _paragraphs(out, f"sweet {name} COMMAND -h shows what a command takes.")
    return drawn.get().rstrip()


def of_command(command: Declaration) -> str:
    """The help of one command."""
    out = _console()
    with out.capture() as drawn:
        _usage(out, command.usage)
        _examples(out, command.examples)
        _paragraphs(out, command.summary, command.text)
        _list(out, "Arguments", ((argument.metavar, argument.help) for argument in command.positional))
        _list(out, "Options", _options(option for option in command.flags if not option.operational))
        _list(out, OPERATIONAL_PANEL, _options(option for option in command.flags if option.operational))
        _list(out, "Common", [*_options(common_options(command.name)), ("-h, --help", "Show this help.")])
        variable = f"{env_prefix(command.name)}_OPTION"
        _paragraphs(
            out,
            f"Every option can also come from a variable named {variable}; the common ones aside, "
            "from --config FILE too.",
        )
    return drawn.get().rstrip()


def _options(options: Iterable[OptionSpec]) -> Iterator[tuple[str, str]]:
    for option in options:
        form = f"{option.flag} / --no-{option.key}" if option.two_sided else f"{option.flag} {option.metavar}".strip()
        yield form + ("…" if option.is_list else ""), " ".join(filter(None, (option.help, _remarks(option))))


def _remarks(option: OptionSpec) -> str:
    """What the help adds to an option's words."""
    default = _shown_default(option)
    remarks = [option.bounds, "required" if option.required else "", f"default: {default}" if default else ""]
    said = "; ".join(filter(None, remarks))
    return f"({said})" if said else ""


def _shown_default(option: OptionSpec) -> str:
    """The default as words; empty where there is none to speak of."""
    if option.is_switch:
        return "on" if option.default else ""
    if isinstance(option.default, list):
        return ", ".join(map(str, option.default))
    return "" if option.default is None else str(option.default)


def _console() -> Console:
    out = console.output_console()
    out.width = min(out.width if out.width < console.UNWRAPPED else UNKNOWN, WIDEST)
    return out


def _usage(out: Console, usage: str) -> None:
    _say(out, f"Usage: {usage}", "bold", hanging=7)


def _examples(out: Console, examples: Rows) -> None:
    for line, what in examples:
        out.print()
        _say(out, f"# {what}", "dim", indent=2, hanging="  # ")
        out.print(Text(folded(line, out.width - 2), "bold"), soft_wrap=True)


def folded(line: str, width: int) -> str:
    """A command line over as many lines as it needs; it can still be copied."""
    lines = textwrap.wrap(line, width - 4, break_long_words=False, break_on_hyphens=False)
    return "  " + " \\\n      ".join(lines)


def _paragraphs(out: Console, *texts: str) -> None:
    for paragraph in filter(None, "\n\n".join(filter(None, texts)).split("\n\n")):
        out.print()
        _say(out, paragraph)


def _list(out: Console, title: str, rows: Rows) -> None:
    rows = list(rows)
    if not rows:
        return
    out.print()
    _say(out, title, "bold cyan")
    wide = out.width >= NARROW
    left = max((len(word) for word, _ in rows if len(word) <= WORDS), default=WORDS)
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
            _say(out, meaning, indent=indent)


def _say(out: Console, text: str, style: str = "", indent: int = 0, hanging: int | str | None = None) -> None:
    """Print a text, wrapped; `hanging` is what the lines below the first begin with, where that is not the indent."""
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
