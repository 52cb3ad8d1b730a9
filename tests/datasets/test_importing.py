"""Imported trajectories are complete, and have scores if they have rewards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sweet.datasets.importing import DataImportConfig, run_data_import
from sweet.errors import InputError, UsageError
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from tests.datasets.test_published import row, write
from tests.stages.heard import Heard


def take(file: Path, folder: Path) -> Run:
    run_data_import(file, folder, DataImportConfig(), Silent())
    return Run.open(folder)


def test_an_import_makes_the_run_and_keeps_ids_and_order(tmp_path: Path) -> None:
    file = write(tmp_path / "off.jsonl", [row(id=name) for name in ("c", "a", "b")])
    result = run_data_import(file, tmp_path / "new" / "run", DataImportConfig(), Silent())
    run = Run.open(tmp_path / "new" / "run")
    (rollouts,) = result.artifacts
    assert (rollouts.kind, rollouts.rows, rollouts.status) == ("rollouts", 3, "done")
    assert [t.id for t in read_jsonl(run.file(rollouts), Trajectory)] == ["c", "a", "b"]
    assert (result.metrics.trajectories, result.metrics.scores) == (3, 0)
    assert run.manifest().task == "code"
    assert run.manifest().attempts[0].config["file"] == str(file)
    assert run.stale(rollouts) is None


def test_rewards_become_scores(tmp_path: Path) -> None:
    rewards = [1.0, 0.5, 0.0, 0.3, None, 0]
    rows = [row(reward=reward) for reward in rewards]
    rows[-1]["answer"] = "No answer"
    run = take(write(tmp_path / "off.jsonl", rows), tmp_path / "run")
    scores = run.find("scores", needed_by="test")
    assert run.input_of(scores, "rollouts").id == "rollouts-1"
    assert scores.meta["scorer"] == "imported"
    found = {score.id: score for score in read_jsonl(run.file(scores), Score)}
    assert [(s.id, s.reward, s.passed, s.total, s.outcome) for s in found.values()] == [
        ("off-00000", 1.0, 2, 2, "passed"),
        ("off-00001", 0.5, 1, 2, "failed"),
        ("off-00002", 0.0, 0, 2, "failed"),
        ("off-00003", 0.3, 0, 0, "failed"),
        ("off-00005", 0.0, 0, 2, "no_answer"),
    ]


def test_imported_trajectories_of_one_task_can_be_labelled_at_once(tmp_path: Path) -> None:
    run = take(write(tmp_path / "off.jsonl", [row(reward=1), row(reward=0)]), tmp_path / "run")
    assert run_label(run, LabelConfig(), Silent()).metrics.pairs == 1


def test_a_wrong_row_leaves_nothing_behind(tmp_path: Path) -> None:
    file = write(tmp_path / "off.jsonl", [row(), row(reward="x")])
    with pytest.raises(InputError):
        take(file, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = take(write(tmp_path / "good.jsonl", [row()]), tmp_path / "run")
    before = (run.path / "manifest.json").read_bytes()
    with pytest.raises(InputError):
        take(file, tmp_path / "run")
    assert (run.path / "manifest.json").read_bytes() == before


def test_a_kind_of_task_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "off.jsonl", [row()])
    with pytest.raises(UsageError):
        run_data_import(file, tmp_path / "run", DataImportConfig(task="nothing"), Silent())


@pytest.mark.parametrize(
    ("turn", "thought", "content", "output"),
    [
        ({"content": "<think>hm</think>\n\nWhat?"}, "hm", "What?", None),
        ({"content": "hm</think>What?", "output": "hm</think>What?"}, "hm", "What?", "What?"),
        ({"content": "What?", "output": "<think>hm</think>OUTPUT: What?"}, "hm", "What?", "OUTPUT: What?"),
        ({"content": "What?", "reasoning_content": "hm\n"}, "hm", "What?", None),
        ({"content": "What?", "reasoning": "hm", "thought": "so"}, "so", "What?", None),
        ({"content": "What?", "output": "OUTPUT: What?"}, None, "What?", "OUTPUT: What?"),
        ({"content": "<think>hm"}, "hm", "", None),
    ],
)
def test_thoughts_in_imported_replies_are_put_apart(
    turn: dict[str, str], thought: str | None, content: str, output: str | None, tmp_path: Path
) -> None:
    imported = row()
    imported["dialogue_history"][1] = {"role": "assistant", **turn}
    heard = Heard()
    run_data_import(write(tmp_path / "off.jsonl", [imported]), tmp_path / "run", DataImportConfig(), heard)
    run = Run.open(tmp_path / "run")
    [found] = read_jsonl(run.file(run.artifact("rollouts-1")), Trajectory)
    said = found.dialogue_history[1]
    assert (said.thought, said.content, said.output) == (thought, content, output)
    assert any("Rows with thoughts of the agent" in line for line in heard.said) == (thought is not None)
    assert "reasoning" not in (said.model_extra or {})


@pytest.mark.parametrize("format", ["auto", "published", "inspect", "verifiers"])
def test_a_pipe_is_not_waited_for_and_a_huge_file_is_not_read_at_once(tmp_path: Path, format: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge.json").touch()
    os.truncate(tmp_path / "huge.json", 1 << 40)
    for name in ("pipe", "huge.json"):
        with pytest.raises(InputError, match=r"named pipe|larger than|has more than"):
            run_data_import(tmp_path / name, tmp_path / "run", DataImportConfig(format=format), Silent())
    assert not (tmp_path / "run").exists()
