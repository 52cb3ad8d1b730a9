"""Parsing words with Typer: which values come out, and that only public names of Typer are used."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import sweet as package
from sweet.cli.group import load
from sweet.cli.options import given_as
from sweet.cli.spec import TAIL
from tests.cli.conftest import Program
from tests.cli.toy import program

NOT_UTF_8 = "a\udcff"


def given(*words: str, command: Any = None) -> dict[str, Any]:
    """The values that words of a call give to the parameters of a command, of which the toy is one."""
    declared = command or get_command(program()).load("play")  # type: ignore[attr-defined]
    with declared.make_context("play", list(words)) as context:
        tail = context.meta.get(TAIL)
        values = {name: value for name, value in context.params.items() if given_as(context, name) == "COMMANDLINE"}
        return values | ({} if not tail else {"tail": tail})


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("", {}),
        ("r", {"run": Path("r")}),
        ("--samples 3 r", {"samples": "3", "run": Path("r")}),
        ("--samples=3", {"samples": "3"}),
        ("--samples --json", {"samples": "--json"}),
        ("--agent-url a --agent-url b", {"agent_url": ["a", "b"]}),
        ("--nll", {"nll": True}),
        ("--no-nll", {"nll": False}),
        ("--no-nll --nll", {"nll": True}),
        ("-- -r", {"run": Path("-r")}),
    ],
)
def test_values_are_text_lists_and_switches(words: str, values: dict[str, Any]) -> None:
    assert given(*words.split()) == values


def test_words_that_are_not_utf_8_are_unchanged() -> None:
    assert given(NOT_UTF_8, "--compare", NOT_UTF_8) == {"run": Path(NOT_UTF_8), "compare": NOT_UTF_8}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("r --", {"run": Path("r")}),
        ("-- --max-model-len 16 x", {"tail": ["--max-model-len", "16", "x"]}),
        ("--json -- -- --json", {"common_json": True, "tail": ["--", "--json"]}),
    ],
)
def test_words_after_the_separator_are_the_tail(words: str, values: dict[str, Any]) -> None:
    assert given(*words.split(), command=load("rank")) == values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sample 3", "sweet play has no option --sample. Did you mean --samples?"),
        ("--xyzzy", "sweet play has no option --xyzzy."),
        ("--samples", "Option '--samples' requires an argument"),
        ("--json=3", "Option '--json' does not take a value"),
        ("a b", "unexpected extra argument"),
    ],
)
def test_an_error_names_the_word_and_the_help(toy: Program, words: str, message: str) -> None:
    outcome = toy("play", *words.split())
    assert outcome.code == 2
    assert message in outcome.err
    assert "sweet play --help" in outcome.err


def test_an_argument_too_many_says_where_the_options_of_vllm_belong(sweet: Program) -> None:
    outcome = sweet("rank", "a", "b")
    assert outcome.code == 2
    assert "vllm's options go after --" in outcome.err


def test_only_public_names_of_typer_are_imported() -> None:
    private = []
    for path in Path(package.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "typer" in text else "")):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [f"{node.module}.{item.name}" for item in node.names]
            else:
                names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
            private += [
                f"{path.name}: {name}"
                for name in names
                if name.split(".")[0] == "typer" and any(part.startswith("_") for part in name.split("."))
            ]
    assert private == []
