"""Parsing words with Typer: which values come out, and that only public names of Typer are used."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import sweet
from sweet.cli.command import declare
from sweet.cli.declaration import ArgumentSpec, Declaration
from sweet.cli.parser import parse
from sweet.errors import UsageError
from tests.cli.toy import PlayConfig, registry

PLAY = declare(registry().load("play"))
NOT_UTF_8 = "a\udcff"


def given(*words: str, declaration: Declaration = PLAY) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in parse(declaration, words).items() if value is not None}


def with_tail() -> Declaration:
    """The toy command, with a tail for the options of vllm."""
    tail = ArgumentSpec("vllm_options", "-- VLLM_OPTIONS", "Options of vllm.", required=False, is_path=False)
    return Declaration(**{**vars(PLAY), "tail": tail})


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("", {}),
        ("r", {"run": "r"}),
        ("--samples 3 r", {"samples": "3", "run": "r"}),
        ("--samples=3", {"samples": "3"}),
        ("--samples --json", {"samples": "--json"}),
        ("--agent-url a --agent-url b", {"agent_url": ["a", "b"]}),
        ("--nll", {"nll": True}),
        ("--no-nll", {"nll": False}),
        ("--no-nll --nll", {"nll": True}),
        ("--json --config c.toml", {"common_json": True, "common_config": "c.toml"}),
        ("-- -r", {"run": "-r"}),
    ],
)
def test_values_are_text_lists_and_switches(words: str, values: dict[str, Any]) -> None:
    assert given(*words.split()) == values


def test_every_field_has_a_value_or_none() -> None:
    assert set(PlayConfig.model_fields) < set(parse(PLAY, []))
    assert set(parse(PLAY, []).values()) == {None}


def test_words_that_are_not_utf_8_are_unchanged() -> None:
    assert given(NOT_UTF_8, "--compare", NOT_UTF_8) == {"run": NOT_UTF_8, "compare": NOT_UTF_8}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("r --", {"run": "r"}),
        ("-- --max-model-len 16 x", {"vllm_options": ["--max-model-len", "16", "x"]}),
        ("--json -- -- --json", {"common_json": True, "vllm_options": ["--", "--json"]}),
    ],
)
def test_words_after_the_separator_are_the_tail(words: str, values: dict[str, Any]) -> None:
    assert given(*words.split(), declaration=with_tail()) == values


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
def test_an_error_names_the_word_and_the_help(words: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(*words.split())
    assert message in caught.value.what
    assert str(caught.value.fix).startswith("sweet play --help")


def test_an_argument_too_many_says_where_the_options_of_vllm_belong() -> None:
    with pytest.raises(UsageError, match="vllm's options go after --"):
        given("a", "b", declaration=with_tail())


def test_only_public_names_of_typer_are_imported() -> None:
    private = []
    for path in Path(sweet.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
