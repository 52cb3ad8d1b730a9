"""What the program itself says names only what is there: its help, its examples, and what its errors propose."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.command_lines import Parser, simple_commands
from tests.docs.pages import ROOT, Piece

FOREIGN = {"--force-reinstall", "--gpus-per-node", "--max-model-len", "--upgrade"}
"""Options of pip, sbatch and vllm that fixes name."""


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser()


def test_every_example_of_the_help_is_understood(parser: Parser, workplace: Path) -> None:
    wrong: list[str] = []
    for name, command in parser.commands.items():
        for line, _ in command.examples:
            first, *_ = simple_commands(Piece(f"sweet {name} --help", line, "sh"))
            why = parser.complaint(first.words, first.environment)
            wrong += [f"{first.where}: {line}: {why}"] if why else []
    assert wrong == []


def test_the_help_names_only_what_is_there(parser: Parser) -> None:
    wrong: list[str] = []
    for name, command in parser.commands.items():
        texts = [command.summary, command.text, *(option.help for option in command.options)]
        wrong += [f"sweet {name} --help: {why}" for text in texts for why in _strangers(text, parser)]
    assert wrong == []


def test_what_errors_propose_is_there(parser: Parser) -> None:
    found = [(where, text) for path in (ROOT / "sweet").rglob("*.py") for where, text in fixes(path)]
    assert len(found) > 150, "the fixes are no longer found"
    assert [f"{where}: {text!r}: {why}" for where, text in found for why in _strangers(text, parser)] == []


def test_a_stranger_is_noticed(parser: Parser) -> None:
    assert list(_strangers("sweet rolout, or --smaples 3", parser)) == ["--smaples", "sweet rolout"]
    assert parser.complaint(["sweet", "rollout", "RUN", "--samples", "4"]) is None
    for call in ("rollout --smaples 4", "rollout --samples 0", "rollout A B", "rank --judge tls", "data import A"):
        assert parser.complaint(["sweet", *call.split()]), call
    assert parser.complaint(["sweet", "rollout"], {"SWEET_ROLLOUT_SAMPLES": "none"})
    assert parser.of_some_command(["--samples", "4"]) is None
    assert parser.of_some_command(["--samples", "x"])


def _strangers(text: str, parser: Parser) -> Iterator[str]:
    """Options that no command has, and commands that are none."""
    yield from sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - parser.flags - FOREIGN)
    for name in re.findall(r"(?<!the )\bsweet ([a-z]+(?:-[a-z]+)*)", text):
        if name not in parser.words:
            yield f"sweet {name}"


def fixes(path: Path) -> Iterator[tuple[str, str]]:
    """(where, text) of every `fix=` in a file; what is put in at run time stands as X."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "fix":
            value = constants.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            for text in _texts(value):
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", text


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)
