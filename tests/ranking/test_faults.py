"""Turns of dialogues that a fault ended are not ranked, whether replies are sampled or given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweet.errors import SweetError
from sweet.learn.rows import Candidate, CandidateRow
from sweet.ranking.config import RankConfig
from sweet.ranking.plan import plan_rank
from sweet.ranking.stage import run_rank
from sweet.runs.jsonl import read_jsonl
from sweet.runs.run import Run
from sweet.stages.base import Silent
from tests.learn.builders import build_trajectory
from tests.stages.heard import Heard
from tests.stages.learn_runs import make_agent, put

OUTCOMES = ("answered", "human_error", "out_of_turns", "deadline", "agent_error")


def rank(run: Run, **options: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the metrics, and the ids of the dialogues whose turns are ranked."""
    result = run_rank(run, RankConfig(judge="random", **options), Silent())
    rows = read_jsonl(run.file(result.artifacts[0]), CandidateRow)
    return result.metrics.as_json(), {row.trajectory_id for row in rows}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", task="code")
    dialogues = [build_trajectory(outcome, turns=2, outcome=outcome) for outcome in OUTCOMES]
    put(run, "rollout", "rollouts", dialogues, agent=make_agent(tmp_path / "agent"), tasks="toy", split="train")
    return run


def test_no_turn_of_a_dialogue_that_a_fault_ended_is_ranked(run: Run) -> None:
    metrics, ranked = rank(run, candidates=2, max_tokens=4, fraction=1.0)
    assert ranked == {"answered", "out_of_turns"}
    assert (metrics["turns"], metrics["failed"], metrics["left_out"]) == (4, 0, 3)
    reporter = Heard()
    plan = plan_rank(run, RankConfig(judge="random", fraction=1.0), reporter)
    assert plan.work.turns == 4
    assert any("whose turns are not ranked: 3" in line for line in reporter.said)


def test_given_replies_in_a_dialogue_that_a_fault_ended_are_not_judged_again(run: Run) -> None:
    replies = (Candidate(text="A", advantage=1), Candidate(text="B", advantage=0))
    rows = [
        CandidateRow(trajectory_id=name, task_id="t", turn=1, observation=(), candidates=replies, taken=None)
        for name in OUTCOMES
    ]
    put(run, "rank", "candidates", rows, [run.artifact("rollouts-1")], agent="x", judge="critic")
    metrics, ranked = rank(run, replies="candidates-1")
    assert ranked == {"answered", "out_of_turns"}
    assert (metrics["turns"], metrics["failed"], metrics["left_out"]) == (2, 0, 3)


def test_with_faults_alone_there_is_nothing_to_rank(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", task="code")
    put(run, "rollout", "rollouts", [build_trajectory("one", turns=2, outcome="human_error")], agent="x", split="train")
    with pytest.raises(SweetError, match="no fault ended"):
        rank(run)
