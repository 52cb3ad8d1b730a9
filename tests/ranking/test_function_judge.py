"""Ranking by a Python function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sweet
from sweet.errors import UsageError
from sweet.inspection.next_commands import suggest_next
from sweet.learn.rows import CandidateRow
from sweet.ranking.config import RankConfig
from sweet.runs.jsonl import read_jsonl
from sweet.tasks.base import Message
from tests.stages.learn_runs import make_agent, make_dialogues, put


def shortest(task: sweet.Task, messages: Sequence[Message], replies: Sequence[str]) -> list[float | None]:
    assert task.ground_truth
    assert messages[0].role == "system"
    return [-len(reply) for reply in replies]


@pytest.fixture
def run(tmp_path: Path) -> sweet.Run:
    run = sweet.Run.create(tmp_path / "run")
    meta: dict[str, Any] = {"agent": make_agent(tmp_path / "agent"), "tasks": "toy", "split": "train", "max_turns": 3}
    put(run, "rollout", "rollouts", [trajectory for trajectory, _ in make_dialogues()[:4]], **meta)
    return run


SMALL = RankConfig(candidates=3, limit=2, fraction=1.0, max_tokens=8)


def test_a_function_judges(run: sweet.Run) -> None:
    result = sweet.rank(run, SMALL, judge=shortest)
    [artifact] = result.artifacts
    assert str(artifact.meta["judge"]).startswith("tests.ranking.test_function_judge.shortest#")
    rows = list(read_jsonl(run.file(artifact), CandidateRow))
    assert len(rows) == 2
    for row in rows:
        mean = sum(len(reply.text) for reply in row.candidates) / len(row.candidates)
        assert row.basis == "function"
        assert [reply.score for reply in row.candidates] == [-len(reply.text) for reply in row.candidates]
        for reply in row.candidates:
            assert reply.advantage == pytest.approx(mean - len(reply.text), abs=1e-6)


def test_a_reply_without_a_score_is_left_out(run: sweet.Run) -> None:
    def all_but_the_first(_task: object, _messages: object, replies: Sequence[str]) -> list[float | None]:
        return [None, *range(len(replies) - 1)]

    result = sweet.rank(run, SMALL, judge=all_but_the_first)
    rows = read_jsonl(run.file(result.artifacts[0]), CandidateRow)
    assert [(len(row.candidates), row.unjudged) for row in rows] == [(2, 1), (2, 1)]


@pytest.mark.parametrize(
    "scores",
    [[1.0], [math.nan] * 4, [math.inf, 0, 0, 0], [10**400] * 4, ["better"] * 4, None, 1.0, [[1.0]] * 4],
    ids=lambda scores: repr(scores)[:20],
)
def test_wrong_scores_are_an_error(run: sweet.Run, scores: Any) -> None:
    with pytest.raises(UsageError, match="one finite number, or None, for each reply"):
        sweet.rank(run, SMALL, judge=lambda task, messages, replies: scores)
    assert not any("<lambda>" in command for command in suggest_next(run.manifest())), "no command can do that"


def function_of(path: Path, source: str) -> Any:
    """The function `own.function` of this source, as in a notebook whose cell is edited."""
    path.write_text(source)
    space: dict[str, Any] = {"__name__": "own"}
    exec(compile(source, path, "exec"), space)
    return space["function"]


def test_a_function_that_was_changed_ranks_anew(run: sweet.Run, tmp_path: Path) -> None:
    source = "def function(task, messages, replies):\n    return [{} for reply in replies]\n"
    first, same, changed = (
        sweet.rank(run, SMALL, judge=function_of(tmp_path / name, source.format(score))).artifacts[0].id
        for name, score in (("a", "len(reply)"), ("b", "len(reply)"), ("c", "-len(reply)"))
    )
    assert (first, same, changed) == ("candidates-1", "candidates-1", "candidates-2")


def test_two_judges_are_refused(run: sweet.Run) -> None:
    with pytest.raises(UsageError, match="two judges"):
        sweet.rank(run, RankConfig(judge="random"), judge=shortest)


def test_options_of_a_critic_are_refused(run: sweet.Run) -> None:
    with pytest.raises(UsageError, match="--reference is an option of --judge critic"):
        sweet.rank(run, RankConfig(reference="micro"), judge=shortest)
