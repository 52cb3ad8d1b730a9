"""What belongs to a trajectory is found, read again from its place, and damage is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweet.errors import InputError, UsageError
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.records import Records, rows_with_offsets
from tests.view.conftest import TRAJECTORIES, made, score, trajectory


def test_summaries_join_the_scores(run: Run) -> None:
    summaries = list(Records(run).summaries())
    assert [s.id for s in summaries] == [f"t{n:03d}" for n in range(TRAJECTORIES)]
    assert [s.reward for s in summaries] == [0, 0.5, 1, 0, 0.5, 1]
    second = summaries[1]
    assert (second.outcome, second.ended, second.passed, second.total) == ("failed", "answered", 1, 2)
    assert (second.turns, second.tokens, second.seconds, second.task_id) == (2, 101, 1.5, "task-0")
    assert summaries[0].seconds is None, "nobody measured it"


def test_a_record_joins_candidates_and_pairs(run: Run) -> None:
    records = Records(run)
    record = records.record(records.find("t001"))
    assert record.trajectory == trajectory(1)
    assert record.score is not None
    assert record.reward == record.score.reward == 0.5
    assert [c.advantage for c in record.best_first(1)] == [0.25, 0.0, -0.5]
    assert record.scale == 0.5
    assert record.advantage(1) == 0.25
    assert record.advantage(3) is None
    assert [pair.chosen for pair in record.pairs[1]] == ["Which number?"]
    other = records.record(records.find("t002"))
    assert (other.ranked, other.pairs) == ({}, {})


def test_a_name_may_be_the_only_beginning(run: Run) -> None:
    made(run, "rollout", "rollouts", [dump(trajectory(1, id=name)) for name in ("abc", "abcd", "b-1")], [], number=1)
    records = Records(run)
    assert records.find("b").id == "b-1"
    assert records.find("abc").id == "abc", "an exact name comes first"
    with pytest.raises(UsageError, match="Several") as caught:
        records.find("ab")
    assert caught.value.fix == "--id abc or --id abcd"
    with pytest.raises(UsageError, match="no trajectory") as caught:
        records.find("bcd")
    assert "--id abcd" in str(caught.value.fix)


def test_a_name_of_other_rollouts_says_where_it_is(run: Run) -> None:
    made(run, "rollout", "rollouts", [dump(trajectory(1, id="later"))], [], number=1)
    with pytest.raises(UsageError, match="not in rollouts-2 but in rollouts-1") as caught:
        Records(run).find("t001")
    assert caught.value.fix == "--from rollouts-1 --id t001"


def test_scores_of_other_rollouts_do_not_count(run: Run) -> None:
    other = made(run, "rollout", "rollouts", [dump(trajectory(1))], [], number=1)
    assert [s.reward for s in Records(run).summaries()] == [None]
    made(run, "eval", "scores", [score(1, 1.0)], [other], number=1)
    assert [s.reward for s in Records(run).summaries()] == [1.0]
    first = Records(run, "rollouts-1")
    assert [s.reward for s in first.summaries()][:2] == [0, 0.5]
    assert first.candidates is not None
    assert first.pairs is not None, "pairs descend from the rollouts by way of the candidates"


def test_the_newest_scores_count(run: Run) -> None:
    made(run, "eval", "scores", [score(n, 1.0) for n in range(TRAJECTORIES)], [run.artifact("rollouts-1")], number=1)
    assert {s.reward for s in Records(run).summaries()} == {1.0}


def test_a_damaged_line_is_told_and_a_torn_one_left_out(tmp_path: Path, run: Run) -> None:
    path = run.file(run.artifact("rollouts-1"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "torn"')
    assert len(list(Records(run).summaries())) == TRAJECTORIES
    path.write_bytes(whole.rstrip(b"\n"))
    assert len(list(Records(run).summaries())) == TRAJECTORIES
    for damage in (b"{broken\n", b"[]\n", b"{}\n", b'{"id": "x", "task": {"id": "y"}, "dialogue_history": [1]}\n'):
        path.write_bytes(damage + whole)
        with pytest.raises(InputError):
            list(Records(run).summaries())
    path.unlink()
    with pytest.raises(UsageError, match="gone"):
        Records(run)


def test_offsets_lead_to_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "ü" * n} for n in range(20)]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    data = path.read_bytes()
    for (offset, row), expected in zip(rows_with_offsets(path), rows, strict=True):
        assert row == expected == json.loads(data[offset:].split(b"\n", 1)[0])
