"""The help, its examples and the fixes of errors name only commands and options that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from sweet.hints import option, stage
from tests.docs.command_lines import Parser, simple_commands
from tests.docs.pages import ROOT, Piece

SOURCES = sorted((ROOT / "sweet").rglob("*.py"))

FOREIGN = {"--force-reinstall", "--gpus-per-node", "--max-model-len", "--upgrade"}
"""Options of pip, sbatch and vllm that fixes name."""


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser()


def test_every_example_of_the_help_is_valid(parser: Parser, workplace: Path) -> None:
    wrong: list[str] = []
    for name, command in parser.commands.items():
        for line, _ in command.examples:
            first, *_ = simple_commands(Piece(f"sweet {name} --help", line, "sh"))
            why = parser.complaint(first.words, first.environment)
            wrong += [f"{first.where}: {line}: {why}"] if why else []
    assert wrong == []


def test_the_help_names_only_existing_commands_and_options(parser: Parser) -> None:
    wrong: list[str] = []
    for name, command in parser.commands.items():
        texts = [command.summary, command.text, *(option.help for option in command.options)]
        wrong += [f"sweet {name} --help: {why}" for text in texts for why in _unknown(text, parser)]
    assert wrong == []


def test_errors_suggest_only_existing_commands_and_options(parser: Parser) -> None:
    found = [(where, text) for path in SOURCES for where, text in (*fixes(path), *hints(path))]
    assert len(found) > 150, "the fixes are no longer found"
    assert [f"{where}: {text!r}: {why}" for where, text in found for why in _unknown(text, parser)] == []


def test_unknown_commands_and_options_are_detected(parser: Parser) -> None:
    assert list(_unknown("sweet rolout, or --smaples 3", parser)) == ["--smaples", "sweet rolout"]
    assert parser.complaint(["sweet", "rollout", "RUN", "--samples", "4"]) is None
    for call in ("rollout --smaples 4", "rollout --samples 0", "rollout A B", "rank --judge tls", "data import A"):
        assert parser.complaint(["sweet", *call.split()]), call
    assert parser.complaint(["sweet", "rollout"], {"SWEET_ROLLOUT_SAMPLES": "none"})
    assert parser.of_some_command(["--samples", "4"]) is None
    assert parser.of_some_command(["--samples", "x"])


def _unknown(text: str, parser: Parser) -> Iterator[str]:
    """Yield the options and commands in a text that do not exist."""
    yield from sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - parser.flags - FOREIGN)
    for name in re.findall(r"(?<!the )\bsweet ([a-z]+(?:-[a-z]+)*)", text):
        if name not in parser.words:
            yield f"sweet {name}"


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file; an empty one if it has nothing that `fixes` and `hints` look for: to parse all takes long."""
    text = path.read_text(encoding="utf-8")
    return ast.parse(text if re.search(r"\b(fix|where)=|sweet\.hints", text) else "")


def fixes(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (where, text) of every `fix=` and `where=` in a file, with X for values inserted at run time."""
    tree = parsed(path)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("fix", "where"):
            value = constants.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            for text in _texts(value):
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", text


def hints(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (where, text) of every option and stage that a file names by `sweet.hints`."""
    tree = parsed(path)
    imported = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "sweet.hints"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported & {*_HINTS}:
            for name in _choices(node.args[0]):
                yield f"{path}:{node.lineno}", str(_HINTS[node.func.id](name))
            if node.func.id == "stage":
                yield from ((f"{path}:{node.lineno}", str(option(word.arg))) for word in node.keywords if word.arg)


_HINTS: dict[str, Callable[[str], str]] = {"option": option, "stage": stage}


def _choices(node: ast.expr) -> list[str]:
    """Return the constants that an argument can be: one, or those of a conditional expression; none for a variable."""
    if isinstance(node, ast.IfExp):
        return [*_choices(node.body), *_choices(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_a_misspelt_hint_is_detected(parser: Parser, tmp_path: Path) -> None:
    source = 'from sweet.hints import option, stage\nfix = option("smaples", 3), stage("rolout", seeed=1)\n'
    (tmp_path / "module.py").write_text(source)
    found = [stranger for _, text in hints(tmp_path / "module.py") for stranger in _unknown(text, parser)]
    assert found == ["--smaples", "sweet rolout", "--seeed"]


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)
