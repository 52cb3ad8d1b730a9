"""Command lines in the docs: extracted from shell blocks, and checked by the real parser.

`simple_commands` parses a shell block: continued lines, comments, assignments before a command, pipes, lists and
redirections. `Parser.complaint` runs a call with the work of every command removed: its options must exist, their
values must be valid, and the number of arguments must be right. Words such as RUN or MODEL are ordinary strings.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweet.cli.app import run
from sweet.cli.group import Group, load
from sweet.cli.options import COMMON as COMMON_OPTIONS
from sweet.cli.options import LONG_WORK
from sweet.cli.spec import Call, Spec
from tests.docs.pages import Piece

COMMON = {f"--{key}" for key, *_ in (*COMMON_OPTIONS, *LONG_WORK)} | {"--help", "--help-all"}
"""Options of every command, or of every stage."""

_PUNCTUATION = "|&;<>()"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Simple:
    """A simple command: a program with its arguments, and the assignments before it."""

    where: str
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return shlex.join(self.words)


def shell_lines(block: Piece) -> Iterator[str]:
    """Yield the typed lines: those after `$ ` in a `console` block, else every line. Continued lines are joined."""
    lines = iter(block.text.splitlines())
    for line in lines:
        typed = line.removeprefix("$ ")
        if block.language == "console" and typed == line:
            continue  # output of the program
        while typed.endswith("\\"):
            typed = typed[:-1] + next(lines).strip()
        yield typed


def simple_commands(block: Piece) -> Iterator[Simple]:
    """Yield the simple commands of a shell block. Exported variables, and variables that the block sets, apply to the
    commands after them."""
    exported: dict[str, str] = {}
    variables: dict[str, str] = {}
    for line in shell_lines(block):
        for name, value in variables.items():
            line = re.sub(rf"\${name}\b", value, line)
        for words in _split(line):
            if words[0] == "export":
                exported |= dict(word.split("=", 1) for word in words[1:])
                continue
            assigned = dict(word.split("=", 1) for word in itertools.takewhile(_ASSIGNMENT.match, words))
            if rest := words[len(assigned) :]:
                yield Simple(block.where, rest, {**exported, **assigned})
            else:
                variables |= assigned


def _split(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace_split = True
    words: list[str] = []
    tokens = iter(lexer)
    for token in tokens:
        if token[0] in "<>":
            next(tokens)  # where it is redirected to
        elif token[0] in _PUNCTUATION:
            if words:
                yield words
            words = []
        else:
            words.append(token)
    if words:
        yield words


def alternatives(span: str) -> list[list[str]]:
    """Return the command lines that a span abbreviates: `--engine torch|deepspeed` is two; `…` is dropped."""
    words = [word for word in shlex.split(span) if word not in ("…", "...")]
    return [list(choice) for choice in itertools.product(*(word.split("|") for word in words))]


class Parser:
    """The program, whose commands do nothing after their words have been parsed.

    Attributes:
        commands: what the commands are made of, by name.
        words: the names, and the first words of names with two.
        flags: the options of all commands.
    """

    def __init__(self) -> None:
        self.commands: dict[str, Spec] = {name: load(name).spec for name in Group.names()}
        self.words = {word for name in self.commands for word in (name, name.split()[0])}
        self.flags = (
            COMMON
            | {"--version", "--install-completion", "--show-completion"}
            | {flag for one in self.commands.values() for flag in _flags(one)}
        )

    def complaint(
        self,
        words: list[str],
        environment: dict[str, str] | None = None,
        act: Callable[[Call[Any]], None] = lambda _: None,
    ) -> str | None:
        """Return the error for a call, whose `words` start with `sweet`; None if it is valid.

        Args:
            act: is given the call in the place of the command's function.
        """
        if words[1:] and words[1].startswith("-"):
            return None if words[1] in self.flags else f"{words[1]} is no option of sweet"
        stderr = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            patch.setattr("sweet.cli.calls.act", act)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(stderr):
                code = run(self._filled(words[1:]))
        return stderr.getvalue() if code else None

    def of_some_command(self, words: list[str]) -> str | None:
        """Return the error for options without a command; None if one of the commands accepts them."""
        flag = words[0].partition("=")[0]
        if flag not in self.flags:
            return f"no command has {flag}"
        for name, command in self.commands.items():
            needed = ["X" for argument in command.positional.values() if argument.default is argument.empty]
            needed += [
                word for spec in command.flags if spec.required and spec.flag != flag for word in (spec.flag, "m")
            ]
            valued = {spec.flag for spec in command.flags if not spec.is_switch}
            has = flag in COMMON or flag in (valued if words[1:] else _flags(command))
            # A single option may require another one.
            if has and (not words[1:] or self.complaint(["sweet", *name.split(), *needed, *words]) is None):
                return None
        return f"no command accepts {shlex.join(words)}"

    def _filled(self, words: list[str]) -> list[str]:
        """Return the words of a call without options whose value is a placeholder in capitals (`--lora R`), or is
        missing at the end."""
        called = [one for name, one in self.commands.items() if words[: len(name.split())] == name.split()]
        valued = {"--config", "--notify"} | {spec.flag for one in called for spec in one.flags if not spec.is_switch}
        free = valued - {spec.flag for one in called for spec in one.flags if spec.required}
        kept: list[str] = []
        for word in [*words, "X"]:
            if kept and kept[-1] in (valued if len(word) == 1 else free) and word.isalpha() and word.isupper():
                kept.pop()
            else:
                kept.append(word)
        return kept[:-1] if kept[-1:] == ["X"] else kept


def _flags(command: Spec) -> set[str]:
    return {flag for option in command.flags for flag in option.flags}


def touch_configurations(commands: list[Simple], folder: Path) -> None:
    """Create the configuration files that calls name, empty."""
    for command in commands:
        for flag, value in itertools.pairwise(command.words):
            if flag == "--config":
                (folder / Path(value).name).touch()
