"""Suggestions for misspelt commands, options, values, artifacts, runs and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.cli.conftest import Program
from tests.cli.test_commands import row


@pytest.fixture
def scored(workplace: Path) -> Run:
    """A run with rollouts-1 and scores-1."""
    import json

    file = workplace / "in.jsonl"
    file.write_text("".join(json.dumps(row(name, 1.0)) + "\n" for name in "ab"))
    run_data_import(file, Path("runs/first"), DataImportConfig(), Silent())
    return Run(Path("runs/first"))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("rolout", "rollout"),
        ("help", "sweet --help"),
        ("versoin", "sweet --version"),
        ("data help", "sweet data --help"),
        ("data inport", "import"),
        ("rollout --num-task 3", "--num-tasks"),
        ("rollout --verbos", "--verbose"),
        ("eval --scorer stric", "strict"),
        ("train-critic --log-to tensorbord", "tensorboard"),
        ("rollout --task cod", "code"),
        ("rollout --tasks micor", "micro"),
        ("rollout --tasks micro --split tran", "train"),
        ("rollout --tasks in.json", "in.jsonl"),
        ("label runs/first --from score-1", "scores-1"),
        ("eval runs/first --from rolouts-1", "rollouts-1"),
        ("status runs/firts", "runs/first"),
        ("status first", "runs/first"),
        ("data import in.josnl runs/x", "in.jsonl"),
    ],
)
def test_a_similar_word_is_suggested(sweet: Program, scored: Run, words: str, meant: str) -> None:
    outcome = sweet(*words.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert f"Did you mean {meant}?" in outcome.err.replace("--task ", "").replace("--split ", ""), outcome.err


def test_nothing_is_suggested_for_a_dissimilar_word(sweet: Program, workplace: Path) -> None:
    for words in ("xyzzy", "rollout --xyzzy", "status xyzzy"):
        outcome = sweet(*words.split())
        assert outcome.code == 2
        assert "Did you mean" not in outcome.err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SWEET_ROLLOUT_NUMTASKS", "SWEET_ROLLOUT_NUM_TASKS"),
        ("SWEET_TRAIN_CRITIC_EPOCH", "SWEET_TRAIN_CRITIC_EPOCHS"),
        ("SWEET_EVAL_JSN", "SWEET_EVAL_JSON"),
        ("SWEET_AGENT_APIKEY", "SWEET_AGENT_API_KEY"),
        ("SWEET_CACHE_DIR", "SWEET_CACHE"),
    ],
)
def test_a_variable_that_no_command_reads_is_warned_of(
    sweet: Program, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "secret-value")
    outcome = sweet("label", "--dry-run")
    assert f"warning: The environment variable {name} is ignored: no command reads it. Did you mean {meant}?" in (
        outcome.err
    )
    assert "secret-value" not in outcome.err


def test_variables_of_every_command_and_setting_and_of_other_programs_are_not_warned_of(
    sweet: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweet.cli.errors import VARIABLES
    from sweet.cli.group import Group, load

    for option in (option for name in Group.names() for option in (*load(name).spec.options, *load(name).spec.common)):
        monkeypatch.setenv(option.envvar, "")
    for name in VARIABLES:
        monkeypatch.setenv(name, "x")
    for name in ("SWEET_HOME_OF_THE_FAMILY", "SWEETNESS", "SWEET_"):
        monkeypatch.setenv(name, "x")
    assert "is ignored" not in sweet("label", "--dry-run").err


def test_variables_of_the_options_of_a_command_are_not_warned_of(toy: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SWEET_PLAY_SAMPLES", "SWEET_LEARN_QUIET"):
        monkeypatch.setenv(name, "")
    assert "is ignored" not in toy("play", "--dry-run").err
