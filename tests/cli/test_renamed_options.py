"""Options and values that have been renamed: the former spelling works, with a warning, and is not shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.cli.app import build
from sweet.cli.completion import completions
from sweet.cli.declaration import Declaration
from tests.cli.conftest import Outcome, Program
from tests.cli.toy import registry

RENAMED = [
    ("rollout", "patience", "retry-timeout"),
    ("rollout", "start-up", "startup-timeout"),
    ("rank", "patience", "retry-timeout"),
    ("rank", "start-up", "startup-timeout"),
    ("doctor", "patience", "import-timeout"),
]
"""Command, former key and current key."""


def resolved(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    loaded: dict[str, Any] = json.loads(outcome.out)
    return loaded


def test_a_former_flag_is_accepted_with_a_warning(toy: Program) -> None:
    outcome = toy("play", "--patience", "3", "--dry-run")
    assert resolved(outcome)["retry_timeout"] == 3
    assert outcome.err == "warning: --patience is a former name; use --retry-timeout.\n"


def test_a_former_variable_is_accepted_with_a_warning(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_PLAY_PATIENCE", "3")
    outcome = toy("play", "--dry-run")
    assert resolved(outcome)["retry_timeout"] == 3
    assert "warning: SWEET_PLAY_PATIENCE is a former name; use SWEET_PLAY_RETRY_TIMEOUT." in outcome.err


@pytest.mark.parametrize(("text", "key"), [("patience = 3", "patience"), ("[play]\npatience = 3", "play.patience")])
def test_a_former_key_of_the_file_is_accepted_with_a_warning(
    toy: Program, workplace: Path, text: str, key: str
) -> None:
    Path("c.toml").write_text(text)
    outcome = toy("play", "--config", "c.toml", "--dry-run")
    assert resolved(outcome)["retry_timeout"] == 3
    assert f"warning: c.toml, key {key} is a former name; use retry-timeout." in outcome.err


def test_the_current_name_counts_where_both_are_given(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("c.toml").write_text("patience = 1\nretry-timeout = 2\n")
    monkeypatch.setenv("SWEET_PLAY_PATIENCE", "3")
    for words, value in (((), 3), (("--retry-timeout", "4"), 4), (("--patience", "5", "--retry-timeout", "4"), 4)):
        assert resolved(toy("play", *words, "--config", "c.toml", "--dry-run"))["retry_timeout"] == value
    monkeypatch.delenv("SWEET_PLAY_PATIENCE")
    outcome = toy("play", "--config", "c.toml", "--dry-run")
    assert (resolved(outcome)["retry_timeout"], outcome.err) == (2, "")


@pytest.mark.parametrize("source", ["flag", "variable", "file"])
def test_a_former_value_is_accepted_with_a_warning(toy: Program, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    Path("c.toml").write_text('scorer = "loose"\n' if source == "file" else "")
    if source == "variable":
        monkeypatch.setenv("SWEET_PLAY_SCORER", "loose")
    words = ["--scorer", "loose"] if source == "flag" else []
    outcome = toy("play", *words, "--config", "c.toml", "--dry-run")
    assert resolved(outcome)["scorer"] == "upstream"
    where = {"flag": "--scorer", "variable": "SWEET_PLAY_SCORER", "file": "c.toml, key scorer"}[source]
    assert outcome.err == f"warning: {where}: loose is a former value; use upstream.\n"


def test_quiet_silences_the_warning(toy: Program) -> None:
    assert toy("play", "--patience", "3", "--dry-run", "--quiet").err == ""


def test_the_command_that_resumes_has_the_current_names(toy: Program) -> None:
    outcome = toy("play", "r", "--tasks", "stop", "--patience", "3", "--scorer", "loose")
    assert "sweet play r --tasks stop --scorer upstream --retry-timeout 3 --resume" in " ".join(outcome.err.split())


def test_a_wrong_value_under_a_former_name_names_what_was_written(toy: Program) -> None:
    outcome = toy("play", "--patience", "-1")
    assert outcome.code == 2
    assert "--patience: should be greater than or equal to 0" in outcome.err


def test_help_and_completion_show_the_current_names_only(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = toy("play", "--help").out
    assert "--retry-timeout" in shown
    assert "patience" not in shown
    assert "loose" not in shown
    assert offered("play", "--") >= {"--retry-timeout"}
    assert not offered("play", "--pat")
    assert offered("play", "--scorer", "") == {"strict", "upstream"}
    assert offered("play", "--patience", "3", "--retry") == set(), "it is given already"


def offered(*words: str) -> set[str]:
    return {item.value for item in completions(registry(), ["sweet", *words])}


def test_an_unknown_option_does_not_suggest_a_former_name(toy: Program) -> None:
    Path("c.toml").write_text("patienc = 3\n")
    for words in (("--patienc", "3"), ("--config", "c.toml")):
        assert "patience" not in toy("play", *words).err


@pytest.mark.parametrize(("command", "former", "current"), RENAMED)
def test_every_renamed_option_has_its_former_name(command: str, former: str, current: str) -> None:
    declaration: Declaration = build().declaration(command, from_index=True)
    (option,) = [option for option in declaration.flags if option.key == current]
    assert option.former is not None
    assert (option.former.flag, option.former.envvar) == (
        f"--{former}",
        f"SWEET_{command.upper()}_{former.upper().replace('-', '_')}",
    )


@pytest.mark.parametrize("command", ["train-critic", "train-actor"])
def test_shuffle_kin_is_grouped(command: str) -> None:
    declaration = build().declaration(command, from_index=True)
    (option,) = [option for option in declaration.flags if option.key == "shuffle"]
    assert (option.choices, option.former_values) == (("auto", "examples", "pieces", "grouped"), {"kin": "grouped"})
