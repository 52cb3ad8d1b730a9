"""The data of a trajectory is found and read from its position, and damage is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.errors import InputError, UsageError
from sweet.runs.jsonl import JsonlWriter
from sweet.runs.run import Run
from sweet.tasks.trajectory import dump
from sweet.view.records import Records
from tests.view.conftest import TRAJECTORIES, AnyConfig, made, score, trajectory


def test_summaries_join_the_scores(run: Run) -> None:
    summaries = list(Records(run).summaries())
    assert [s.id for s in summaries] == [f"t{n:03d}" for n in range(TRAJECTORIES)]
    assert [s.reward for s in summaries] == [0, 0.5, 1, 0, 0.5, 1]
    second = summaries[1]
    assert (second.outcome, second.ended, second.passed, second.total) == ("failed", "answered", 1, 2)
    assert (second.turns, second.tokens, second.seconds, second.task_id) == (2, 101, 1.5, "task-0")
    assert summaries[0].seconds is None, "it was not measured"


def test_a_record_joins_candidates_and_pairs(run: Run) -> None:
    records = Records(run)
    record = records.record(records.find("t001"))
    assert record.trajectory == trajectory(1)
    assert record.score is not None
    assert record.reward == record.score.reward == 0.5
    assert sorted(c.advantage for c in record.ranked[1].candidates) == [-0.5, 0.0, 0.25]
    assert record.scale == 0.5
    assert record.advantage(1) == 0.25
    assert record.advantage(3) is None
    assert [pair.chosen.text for pair in record.pairs[1]] == ["Which number?"]
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
    with pytest.raises(UsageError, match="no dialogue") as caught:
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
    assert first.pairs is not None, "pairs descend from the rollouts through the candidates"


def test_the_newest_scores_count(run: Run) -> None:
    made(run, "eval", "scores", [score(n, 1.0) for n in range(TRAJECTORIES)], [run.artifact("rollouts-1")], number=1)
    assert {s.reward for s in Records(run).summaries()} == {1.0}


def test_a_damaged_line_is_reported_and_an_incomplete_one_skipped(tmp_path: Path, run: Run) -> None:
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
    with pytest.raises(UsageError, match="its file does not exist"):
        Records(run)


def test_faults_samples_and_seeds(run: Run) -> None:
    rows = [
        trajectory(0, outcome="human_error", fault="refusal", sample=2, seed=7),
        trajectory(1, outcome="deadline"),
        trajectory(2, outcome="out_of_turns"),
    ]
    made(run, "rollout", "rollouts", map(dump, rows), [], number=1)
    found = Records(run).summaries()
    assert [(s.fault, s.sample, s.seed) for s in found] == [("refusal", 2, 7), ("deadline", 0, None), ("", 0, None)]


class Rollout:
    """A running stage."""

    def __init__(self, run: Run, number: int = 9) -> None:
        self.context = run.attempt("rollout", AnyConfig(number=number))
        self.attempt = self.context.__enter__()
        self.draft = self.attempt.start_artifact("rollouts")

    def write(self, *numbers: int) -> None:
        with JsonlWriter(self.draft.path) as writer:
            for number in numbers:
                writer.write(dump(trajectory(number)))

    def finish(self) -> None:
        self.attempt.finish_artifact(self.draft, rows=1)
        self.stop()

    def stop(self) -> None:
        self.context.__exit__(None, None, None)


def ids(records: Records) -> list[str]:
    return [summary.id for summary in records.summaries()]


def test_a_rollout_is_viewed_as_it_is_when_it_is_opened(run: Run) -> None:
    rollout = Rollout(run)
    records = Records(run)
    assert (records.rollouts.id, records.running, records.state) == ("rollouts-2", True, "running")
    assert ids(records) == [], "no dialogue has ended"
    rollout.write(0, 1, 2)
    with rollout.draft.path.open("ab") as file:
        file.write(b'{"id": "to')
    records = Records(run)
    assert ids(records) == ["t000", "t001", "t002"]
    assert records.record(records.find("t002")).trajectory == trajectory(2)
    rollout.finish()
    assert (Records(run).running, Records(run).state) == (False, "not scored: sweet eval")
    assert Records(run, "rollouts-1").rollouts.id == "rollouts-1"


def test_the_dialogues_of_an_online_training_have_their_scores_while_it_runs_and_after_its_end(run: Run) -> None:
    training = Rollout(run)
    scores = training.attempt.start_artifact("scores")
    training.write(0, 1)
    assert [one.reward for one in Records(run).summaries()] == [None, None]
    with JsonlWriter(scores.path) as writer:
        writer.write(score(0, 0.5))
    records = Records(run)
    assert [one.reward for one in records.summaries()] == [0.5, None]
    assert records.record(records.find("t000")).reward == 0.5
    training.stop()
    assert [one.reward for one in Records(run, "rollouts-2").summaries()] == [0.5, None]


def test_unfinished_rollouts_are_viewed_where_there_are_no_others(tmp_path: Path, run: Run) -> None:
    rollout = Rollout(run)
    rollout.write(3)
    rollout.stop()
    assert Records(run).rollouts.id == "rollouts-1", "the newer ones are not continued"
    named = Records(run, "rollouts-2")
    assert (ids(named), named.running, named.state) == (["t003"], False, "unfinished")
    alone = Run.create(tmp_path / "alone", task="code")
    rollout = Rollout(alone)
    rollout.write(4)
    rollout.stop()
    assert ids(Records(alone)) == ["t004"]
    nothing = Run.create(tmp_path / "nothing", task="code")
    Rollout(nothing).stop()
    with pytest.raises(UsageError, match="not finished"):
        Records(nothing)


def test_a_moved_row_is_reported(run: Run) -> None:
    records = Records(run)
    summary = records.find("t002")
    path = run.file(records.rollouts)
    path.write_bytes(path.read_bytes().replace(b"t000", b"t0000"))
    with pytest.raises(InputError, match="not where it was"):
        records.record(summary)
    assert Records(run).record(summary).trajectory.id == "t002"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="missing from its file"):
        Records(run).record(summary)
