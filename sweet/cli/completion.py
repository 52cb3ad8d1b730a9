"""Completion: answers the shells that ask which words can follow.

A shell asks by running `sweet` with `_SWEET_COMPLETE=complete_SHELL` and the words so far in a variable. The answer is
one candidate per line; for all shells but bash, a tab and the candidate's help follow. `_SWEET_COMPLETE=source_SHELL`
prints the file that makes the shell ask. Nothing is printed on stderr and the exit code is 0, even after an error: the
user is typing.

The words before the cursor are read leniently (`read_words`), from the declaration in the index: an unknown option is
skipped, a missing argument is no error. Typer and pydantic are not imported.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweet.cli import candidates
from sweet.cli.declaration import HELP, HELP_ALL, Declaration, OptionSpec, complete_help
from sweet.cli.environment import from_environment
from sweet.cli.registry import Registry
from sweet.cli.shell_scripts import SCRIPTS

_BREAKS = (":", "=")
"""Characters at which bash splits a word that other shells keep whole: `RUN:scores-2`, `http://host`, `--task=code`."""


class Candidate(NamedTuple):
    """A word that may replace the one at the cursor."""

    value: str
    help: str = ""


def answer(instruction: str, registry: Registry) -> None:
    """Print what `_SWEET_COMPLETE` asks for."""
    what, _, shell = instruction.partition("_")
    if what == "source" and shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[shell])
        return
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        text = "".join(f"{line}\n" for line in _lines(shell, registry)) if what == "complete" else ""
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    except BaseException:  # an interrupt too: there is no place to report it
        os._exit(0)


def _lines(shell: str, registry: Registry) -> list[str]:
    if shell == "bash":
        words, strip = bash_words(os.environ["COMP_WORDS"], int(os.environ["COMP_CWORD"]))
        return [item.value[strip:] for item in completions(registry, words)]
    line = os.environ["_SWEET_WORDS"]
    words = split_words(line)
    if not words or line[-1:].isspace():
        words.append("")
    flag, equals, _ = words[-1].partition("=")
    before = flag + equals if flag.startswith("--") and equals else ""  # these shells replace the whole word
    return [f"{before}{item.value}\t{' '.join(item.help.split())}" for item in completions(registry, words)]


def completions(registry: Registry, words: Sequence[str]) -> list[Candidate]:
    """Return the candidates for the last word. The first word is the program's name."""
    before, typed = list(words[1:-1]), words[-1]
    group = before.pop(0) if before and before[0] in registry.groups else None
    if not before:
        flags = [*HELP, *(["--version"] if group is None else [])]
        return _starting_with(typed, [*map(Candidate, flags)] if typed.startswith("-") else _commands(registry, group))
    name = before[0] if group is None else f"{group} {before[0]}"
    try:
        declaration = registry.declaration(name, from_index=True)
    except (ImportError, KeyError):
        return []
    return _of_command(declaration, before[1:], typed)


def _commands(registry: Registry, group: str | None) -> list[Candidate]:
    return [Candidate(name, help) for name, help in registry.members(group).items()]


def _of_command(declaration: Declaration, before: Sequence[str], typed: str) -> list[Candidate]:
    flag, equals, value = typed.partition("=")
    if equals and flag.startswith("--"):
        before, typed = [*before, flag], value
    line = read_words(declaration, before)
    if line.awaiting is not None:
        complete = candidates.for_option(declaration, line.awaiting)
    elif typed.startswith("-") and not line.after_separator:
        return _starting_with(typed, _flags(declaration, line))
    elif line.next_argument < len(declaration.arguments):
        complete = candidates.for_argument(declaration, declaration.arguments[line.next_argument])
    else:
        return []
    return [Candidate(word) for word in complete(line.values, typed)]


def _flags(declaration: Declaration, line: WordsRead) -> Iterator[Candidate]:
    """The options that can still be given."""
    for option in declaration.accepted:
        if not option.hidden and (option.is_list or option.field not in line.given):
            yield from (Candidate(flag, option.help) for flag in option.flags)
    yield from (Candidate(flag, "Show this help.") for flag in HELP)
    if complete_help(declaration.options) == HELP_ALL:
        yield Candidate(HELP_ALL, "Show the help with every option.")


def _starting_with(typed: str, items: Sequence[Candidate] | Iterator[Candidate]) -> list[Candidate]:
    return [item for item in items if item.value.startswith(typed)]


@dataclass
class WordsRead:
    """The meaning of the words before the cursor.

    Attributes:
        values: arguments and options by field name, also those from the environment.
        given: the fields of the options among the words.
        awaiting: the option whose value comes next.
        next_argument: the number of arguments so far.
        after_separator: whether `--` is among the words, so that no option follows.
    """

    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    awaiting: OptionSpec | None = None
    next_argument: int = 0
    after_separator: bool = False


def read_words(declaration: Declaration, words: Sequence[str]) -> WordsRead:
    """Read a command's words before the cursor. Unknown options are skipped."""
    by_flag = {
        flag: option
        for option in declaration.accepted
        for spelling in (option, option.former)
        if spelling is not None
        for flag in spelling.flags
    }
    line = WordsRead({o.field: text for o in declaration.flags if (text := from_environment(o)) is not None})
    remaining = iter(words)
    for word in remaining:
        if word == "--" and not line.after_separator:
            line.after_separator = True
            if declaration.tail is not None:
                line.next_argument = len(declaration.arguments)
                break
        elif word.startswith("-") and not line.after_separator:
            flag, equals, value = word.partition("=")
            if (option := by_flag.get(flag)) is None:
                continue
            if not option.is_switch and not equals:
                following = next(remaining, None)
                if following is None:
                    line.awaiting = option
                    break
                value = following
            _keep(line, option, value)
        else:
            if line.next_argument < len(declaration.arguments):
                line.values[declaration.arguments[line.next_argument].name] = word
            line.next_argument += 1
    return line


def _keep(line: WordsRead, option: OptionSpec, value: str) -> None:
    earlier = line.values.get(option.field, []) if option.is_list and option.field in line.given else []
    line.values[option.field] = [*earlier, value] if option.is_list else value
    line.given.add(option.field)


def split_words(line: str) -> list[str]:
    """Split a command line as a shell does; a quotation that is still open ends with the line."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            words.append(word)  # noqa: PERF402 (keeps the words before the error)
    except ValueError:  # the open quotation, or a backslash at the end
        words.append(lexer.token)
    return words


def bash_words(line: str, position: int) -> tuple[list[str], int]:
    """Return the words up to the one at `position` as other shells split them, and the number of characters of the last
    word that bash already has before the cursor and expects to be omitted from the answer."""
    given = split_words(line)[: position + 1]
    given += [""] * (position + 1 - len(given))
    words: list[str] = []
    joined = False
    for word in given:
        breaks = word in _BREAKS or word.strip(":=") == ""
        if words[1:] and word and (breaks or joined):
            words[-1] += word
        else:
            words.append(word)
        joined = breaks and bool(word)
    last = words[-1]
    value = last.partition("=")[2] if last.startswith("--") and "=" in last else last
    kept = "" if joined else given[-1]
    return words, max(len(value) - len(kept), 0) if last != given[-1] or joined else 0
