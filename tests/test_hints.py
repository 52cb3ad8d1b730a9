"""Hints name options and stages as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

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
