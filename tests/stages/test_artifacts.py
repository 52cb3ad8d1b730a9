"""Which of a run's actors a recorded name means."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import agent_name
from sweet.stages.base import StageConfig
from tests.stages.learn_runs import make_dialogues, put


def make_actor(run: Run) -> Path:
    with run.attempt("train-actor", StageConfig()) as attempt:
        draft = attempt.start_artifact("actor", suffix="")
        (draft.path / "config.json").write_text("{}")
        return run.file(attempt.finish_artifact(draft))


def play(run: Run, agent: Path) -> Artifact:
    return put(run, "rollout", "rollouts", [make_dialogues()[0][0]], agent=str(agent))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


def test_an_actor_of_the_run_is_known_by_its_id_after_a_move(run: Run) -> None:
    rollouts = play(run, make_actor(run))
    assert agent_name(run.manifest(), rollouts) == "actor-1"
    moved = Run.open(run.path.rename(run.path.with_name("moved")))
    assert agent_name(moved.manifest(), rollouts) == "actor-1"


def test_an_actor_in_a_copy_of_the_run_is_known_by_its_id(run: Run) -> None:
    rollouts = play(run, make_actor(run))
    shutil.copytree(run.path, run.path.with_name("copy"))
    copy = Run.open(run.path.with_name("copy"))
    assert agent_name(copy.manifest(), rollouts) == "actor-1"


def test_an_actor_of_another_run_with_the_same_id_is_not_the_run_s_own(run: Run, tmp_path: Path) -> None:
    foreign = make_actor(Run.create(tmp_path / "other", task="code"))
    make_actor(run)
    assert agent_name(run.manifest(), play(run, foreign)) == str(foreign)


def test_an_actor_of_a_run_that_was_deleted_cannot_be_told_from_the_run_s_own(run: Run, tmp_path: Path) -> None:
    """The name may also be that of the run's own actor before a move."""
    foreign = make_actor(Run.create(tmp_path / "other", task="code"))
    make_actor(run)
    rollouts = play(run, foreign)
    shutil.rmtree(tmp_path / "other")
    assert agent_name(run.manifest(), rollouts) == "actor-1"
