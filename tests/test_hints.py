"""Hints name options and stages as they are typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sweet
from sweet.errors import InputError, UsageError
from sweet.hints import option, stage


@pytest.mark.parametrize(
    ("hint", "typed"),
    [
        (option("fail_on_error"), "--fail-on-error"),
        (option("from_", "scores-1"), "--from scores-1"),
        (option("devices", 8), "--devices 8"),
        (option("lr", 1e-5), "--lr 1e-05"),
        (option("tasks", Path("a/b")), "--tasks a/b"),
        (option("tasks", Path("a b/c")), "--tasks 'a b/c'"),
        (stage("eval", persona="in a word"), "sweet eval --persona 'in a word'"),
        (option("split", ("train", "test")), "--split train|test"),
        (option("resume", True), "--resume"),
        (option("verify", False), "--no-verify"),
        (stage("label"), "sweet label"),
        (stage("train-critic", Path("runs/a b")), "sweet train-critic 'runs/a b'"),
        (
            stage("eval", Path("runs/a"), from_="rollouts-1", scorer="strict"),
            "sweet eval runs/a --from rollouts-1 --scorer strict",
        ),
    ],
)
def test_options_and_stages_are_named_as_they_are_typed(hint: str, typed: str) -> None:
    assert hint == typed


def test_an_error_is_one_line_of_its_three_texts() -> None:
    error = UsageError("--lora needs peft.", where=option("lora", 8), fix="leave --lora out")
    assert str(error) == "--lora needs peft. · where: --lora 8 · try: leave --lora out"
    assert str(InputError("It is empty.", path=Path("tasks.jsonl"))) == "It is empty. · where: tasks.jsonl"


def fixes() -> Iterator[str]:
    """Yield the texts of the program that say what fixes an error, values in them as `{}`."""
    for path in Path(sweet.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "fix=" in text else "")):
            if isinstance(node, ast.keyword) and node.arg == "fix":
                parts = node.value.values if isinstance(node.value, ast.JoinedStr) else [node.value]
                texts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts]
                source = ast.unparse(node.value)
                yield f"sweet {''.join(texts)}" if source.startswith("f'{stage(") else "".join(texts)


def test_a_fix_that_begins_with_a_command_is_that_command_alone() -> None:
    """It is copied into a shell as it is."""
    commands = [fix for fix in fixes() if fix.startswith("sweet ")]
    assert len(commands) > 10
    for fix in commands:
        words = fix.removeprefix("sweet ").split()
        while words and re.fullmatch(r"[a-z{}-]+", words[0]) and not words[0].startswith("-"):
            words = words[1:]  # the names of the command, and a run
        option = r"(--[a-z-]+|\{\}|[A-Z]+)( ([A-Z0-9]+|\{\}|\w+))?"
        assert re.fullmatch(rf"({option}( {option})*)?", " ".join(words)), fix
        assert len(fix.partition(" --")[0].split()) <= 4, fix
