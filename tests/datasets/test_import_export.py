"""Imported trajectories are complete, have scores if they have rewards, and are exported unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweet.datasets.import_export import (
    DataExportConfig,
    DataImportConfig,
    export_lines,
    export_rows,
    run_data_export,
    run_data_import,
)
from sweet.errors import InputError, UsageError
from sweet.preferences.config import LabelConfig
from sweet.preferences.label import run_label
from sweet.runs.jsonl import JsonlWriter, read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent, StageConfig
from sweet.tasks.scores import Score
from sweet.tasks.trajectory import Trajectory
from tests.datasets.test_published import row, write


def take(file: Path, folder: Path) -> Run:
    run_data_import(file, folder, DataImportConfig(), Silent())
    return Run.open(folder)


def exported(run: Run, from_: str | None = None) -> list[dict[str, Any]]:
    return list(export_rows(run, DataExportConfig(from_=from_)))


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


def test_a_second_import_is_added_to_the_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = take(write(tmp_path / f"{name}.jsonl", [row(reward=1)]), tmp_path / "run")
    assert [r["id"] for r in exported(run)] == ["two-00000"]
    assert [r["id"] for r in exported(run, "rollouts-1")] == ["one-00000"]


class Rescored(StageConfig):
    pass


def test_an_export_joins_the_newest_scores(tmp_path: Path) -> None:
    run = take(write(tmp_path / "off.jsonl", [row(reward=0), row(), row(reward=0.5)]), tmp_path / "run")
    assert [r.get("reward") for r in exported(run)] == [0, None, 0.5]
    with run.attempt("eval", Rescored(), inputs=[run.artifact("rollouts-1")]) as attempt:
        draft = attempt.start_artifact("scores")
        with JsonlWriter(draft.path) as writer:
            for name, reward in (("off-00000", 1.0), ("off-00001", None), ("off-00002", None)):
                outcome = "passed" if reward else "invalid"
                writer.write(
                    {"id": name, "task_id": "t", "reward": reward, "passed": 2, "total": 2, "outcome": outcome}
                )
        attempt.finish_artifact(draft, rows=3)
    assert [r.get("reward") for r in exported(run)] == [1, None, None], "invalid in the newest scores"


def test_an_export_replaces_its_file_whole(tmp_path: Path) -> None:
    run = take(write(tmp_path / "off.jsonl", [row(reward=1), row()]), tmp_path / "run")
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    result = run_data_export(run, DataExportConfig(out=out), Silent())
    assert result.metrics.as_json() == {"trajectories": 2, "out": str(out)}
    assert out.read_bytes() == b"".join(export_lines(run, DataExportConfig()))
    whole = out.read_bytes()
    path = run.file(run.artifact("rollouts-1"))
    path.write_bytes(path.read_bytes() + b"{broken\n")
    with pytest.raises(InputError):
        run_data_export(run, DataExportConfig(out=out), Silent())
    assert out.read_bytes() == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["off.jsonl", "out.jsonl", "run"]
    for wrong in (tmp_path, tmp_path / "none" / "x.jsonl", None):
        with pytest.raises(UsageError):
            run_data_export(run, DataExportConfig(out=wrong), Silent())


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
EXTRA = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT | st.lists(TEXT, max_size=2)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": TEXT},
    optional={"input": TEXT, "output": TEXT, "mood": EXTRA.filter(lambda value: value is not None)},
)
TASK = st.fixed_dictionaries(
    {
        "problem_description": TEXT.filter(bool),
        "ground_truth": TEXT.filter(bool),
        "test_cases": st.dictionaries(TEXT, TEXT, max_size=3),
    },
    optional={"hidden_information": TEXT.filter(bool), "level": st.integers(0, 9)},
)
ROW = st.fixed_dictionaries(
    {
        "task": TASK,
        "dialogue_history": st.lists(TURN, max_size=3).map(lambda turns: [{"role": "user", "content": "?"}, *turns]),
        "answer": TEXT,
    },
    optional={"reward": st.floats(-1, 1), "note": EXTRA.filter(lambda value: value is not None)},
)


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=4), named=st.booleans(), as_list=st.booleans())
def test_what_came_in_goes_out_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], named: bool, as_list: bool
) -> None:
    folder = tmp_path_factory.mktemp("round")
    if named:
        rows = [{"id": f"id {number}", **given} for number, given in enumerate(rows)]
    out = exported(take(write(folder / "in.jsonl", rows, as_list=as_list), folder / "run"))
    assert len(out) == len(rows)
    for given_row, found in zip(rows, out, strict=True):
        assert {key: found[key] for key in given_row if key != "task"} == {
            key: value for key, value in given_row.items() if key != "task"
        }
        kept = {key: value for key, value in given_row["task"].items() if value != {}}
        assert {key: found["task"][key] for key in kept} == kept
    again = exported(take(write(folder / "again.jsonl", out), folder / "second"))
    assert json.dumps(again) == json.dumps(out), "an export can be imported unchanged"
