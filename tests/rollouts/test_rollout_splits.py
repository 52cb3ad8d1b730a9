"""Rollouts on the splits of a user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweet.errors import UsageError
from sweet.rollouts.config import RolloutConfig
from sweet.rollouts.plan import plan_rollout
from sweet.rollouts.stage import run_rollout
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.stages.meta import RolloutsMeta
from sweet.stages.unseen_tasks import tasks_of
from sweet.tasks.micro import generator
from tests.stages.heard import Heard

COUNT = 6


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "own.jsonl")


def write(path: Path, splits: list[str] | None = None, prefix: str = "own") -> Path:
    """Write tasks of the dataset micro as a user's file."""
    rows = []
    for index, task in enumerate(generator.load("train")[:COUNT]):
        row = {**task.model_dump(mode="json"), "id": f"{prefix}-{index}"}
        rows.append(row if splits is None else {**row, "split": splits[index]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def play(run: Run, file: Path | str, reporter: Silent | None = None, **changes: Any) -> set[str]:
    """Play short dialogues, and return the ids of their tasks."""
    config = RolloutConfig(**{"tasks": str(file), "max_tokens": 8, "max_turns": 1, **changes})
    result = run_rollout(run, config, reporter or Silent())
    return {task.id for task in tasks_of(run, result.artifacts[0])}


def test_shares_keep_training_and_test_tasks_apart(run: Run, file: Path) -> None:
    heard = Heard()
    train, test = (play(run, file, heard, split=split, holdout=0.4) for split in ("train", "test"))
    assert train
    assert test
    assert not train & test
    assert len(train | test) == COUNT
    notes = [text for text in heard.said if text.startswith("Tasks of")]
    assert notes == [
        f"Tasks of {file}: {len(train)} train, {len(test)} test. These are those of the split {split}.{more}"
        for split, more in (("train", ""), ("test", " A rate on fewer than 20 tasks says little."))
    ]
    metas = [RolloutsMeta.of(one) for one in run.manifest().of_kind("rollouts")]
    assert [(meta.split, meta.holdout, meta.holdout_validation) for meta in metas] == [
        ("train", 0.4, None),
        ("test", 0.4, None),
    ]


def test_rows_that_name_their_split_are_played_by_it(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "named.jsonl", ["train", "test"] * (COUNT // 2))
    assert play(run, file) == {"own-0", "own-2", "own-4"}
    assert play(run, file, split="test") == {"own-1", "own-3", "own-5"}
    with pytest.raises(UsageError, match="no task of the split validation"):
        play(run, file, split="validation")


def test_a_file_without_splits_is_for_testing_where_nothing_else_was_played(run: Run, file: Path) -> None:
    heard = Heard()
    assert len(play(run, file, heard, split="test")) == COUNT
    assert heard.said[0] == f"{file} has no splits: all of its tasks ({COUNT}) count as test."


def test_tasks_that_were_played_for_training_are_not_played_for_testing(run: Run, file: Path, tmp_path: Path) -> None:
    play(run, file, num_tasks=2)
    for again in (file, write(tmp_path / "copy.jsonl", prefix="other")):
        with pytest.raises(UsageError, match=r"dialogues on 2 of these tasks .* split train \(rollouts-1\)") as error:
            play(run, again, split="test")
        assert "--holdout 0.2" in str(error.value.fix)
    with pytest.raises(UsageError, match="they would now count as test"):
        plan_rollout(run, RolloutConfig(tasks=str(file), split="test"), Silent())
    assert [one.id for one in run.manifest().artifacts] == ["rollouts-1"]


def test_tasks_that_were_played_for_testing_are_not_played_for_training(run: Run, file: Path) -> None:
    play(run, file, split="test", num_tasks=1)
    with pytest.raises(UsageError, match=r"dialogues on 1 of these tasks .* split test \(rollouts-1\)"):
        play(run, file)


def test_the_splits_of_a_named_dataset_are_its_own(run: Run) -> None:
    with pytest.raises(UsageError, match="micro has splits of its own"):
        play(run, "micro", holdout=0.2)


def test_shares_are_part_of_the_digest() -> None:
    plain = RolloutConfig(tasks="own.jsonl")
    assert plain.digest() == RolloutConfig(tasks="own.jsonl", holdout=None).digest()
    assert plain.digest() != RolloutConfig(tasks="own.jsonl", holdout=0.2).digest()
