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
