"""Hints name options and stages for the command line and for Python."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from sweet.errors import InputError, UsageError, for_command_line
from sweet.hints import Hint, hint_from_json, hint_to_json, in_python, listed, option, stage


@pytest.mark.parametrize(
    ("hint", "command_line", "python"),
    [
        (option("fail_on_error"), "--fail-on-error", "fail_on_error"),
        (option("from_", "scores-1"), "--from scores-1", "from_='scores-1'"),
        (option("devices", 8), "--devices 8", "devices=8"),
        (option("reference", "MODEL"), "--reference MODEL", "reference=MODEL"),
        (option("tasks", Path("a/b")), "--tasks a/b", "tasks='a/b'"),
        (option("split", ("train", "test")), "--split train|test", "split='train' or 'test'"),
        (option("resume", True), "--resume", "resume=True"),
        (stage("label"), "sweet label", "sweet.label(run)"),
        (stage("train-critic", Path("runs/a b")), "sweet train-critic 'runs/a b'", "sweet.train_critic(run)"),
        (
            stage("eval", Path("runs/a"), from_="rollouts-1", scorer="strict"),
            "sweet eval runs/a --from rollouts-1 --scorer strict",
            "sweet.evaluate(run, sweet.EvalConfig(from_='rollouts-1', scorer='strict'))",
        ),
        (
            Hint("a smaller ", option("lr"), ", then ", stage("pair")),
            "a smaller --lr, then sweet pair",
            "a smaller lr, then sweet.pair(run)",
        ),
    ],
)
def test_both_wordings(hint: Hint, command_line: str, python: str) -> None:
    assert (hint, hint.python) == (command_line, python)


def test_a_plain_text_has_one_wording() -> None:
    assert in_python("apt install firefox-esr") == "apt install firefox-esr"


def test_a_hint_keeps_both_wordings_when_it_is_sent_to_another_process() -> None:
    hint = pickle.loads(pickle.dumps(Hint("without ", option("ray"))))  # noqa: S301
    assert (hint, hint.python) == ("without --ray", "without ray")


def test_an_error_is_worded_for_its_user() -> None:
    what = Hint(option("lora"), " needs peft.")
    error = UsageError(what, where=option("lora", 8), fix=Hint("leave ", option("lora"), " out"))
    assert str(error) == "lora needs peft. · where: lora=8 · try: leave lora out"
    assert for_command_line(error) == "--lora needs peft. · where: --lora 8 · try: leave --lora out"
    assert (error.what, error.where, error.fix) == ("--lora needs peft.", "--lora 8", "leave --lora out")


def test_an_error_of_plain_texts_is_worded_once() -> None:
    error = InputError("The task file is empty.", path=Path("tasks.jsonl"), fix="one JSON object a line")
    assert str(error) == for_command_line(error)
    assert for_command_line(OSError("no space left")) == "no space left"


def test_hints_are_listed() -> None:
    hints = listed([option("lora_alpha"), option("lora_output", "adapter")])
    assert (hints, hints.python) == ("--lora-alpha, --lora-output adapter", "lora_alpha, lora_output='adapter'")


@pytest.mark.parametrize("text", [None, "start it", Hint("without ", option("ray"))])
def test_a_text_in_json_keeps_its_wordings(text: str | None) -> None:
    read = hint_from_json(json.loads(json.dumps(hint_to_json(text))))
    assert (read, read and in_python(read)) == (text, text and in_python(text))
