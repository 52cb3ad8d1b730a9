"""A method that learns online, with the packaged agent: it ends when the tokens are used up, and has a curve."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweet.pipeline.steps import ReadOnlyStepCache
from sweet.runs.jsonl import read_jsonl
from sweet.stages.base import Silent
from sweet.study.aggregate import curves
from sweet.study.seeds import run_parts
from sweet.study.settings import METHODS, StudySizes
from sweet.study.study_steps import SeedJob, generated_tokens
from sweet.tasks.trajectory import Trajectory

SIZES = StudySizes(
    train_tasks=6, samples=4, candidates=4, fraction=0.1, eval_tasks=4, curve_tasks=5, curve_steps=2, parts=(2,)
)
GRPO = METHODS["grpo"].model_copy(update={"actor": {"lr": 1e-3, "tasks_per_step": 2, "group": 4}})


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> SeedJob:
    folder = tmp_path_factory.mktemp("study")
    job = SeedJob(folder=folder, seed=0, sizes=SIZES, methods=(METHODS["zero-shot"], GRPO))
    done = list(run_parts(job))
    assert [part["error"] for part in done] == [None] * 4
    assert [part["part"] for part in done] == [
        "zero-shot",
        "grpo",
        "learning curve of grpo, 6 tasks",
        "start of the learning curves",
    ]
    return job


def test_it_ends_after_the_step_in_which_the_agent_has_written_as_many_tokens_as_for_sweet(studied: SeedJob) -> None:
    steps = studied.steps(ReadOnlyStepCache, Silent())
    making = steps.making(GRPO)
    assert [step.attempt.stage for step in making] == ["train-online"], "the offline dialogues only give the budget"
    (trained,) = making
    assert trained.artifact.kind == "actor"
    run = steps.cache.run
    (played,) = (run.manifest().artifact(id) for id in trained.attempt.outputs if id.startswith("rollouts"))
    assert played is not None
    rows = list(read_jsonl(run.file(played), Trajectory))
    tokens = sum(len(turn.token_ids or ()) for row in rows for turn in row.dialogue_history)
    assert generated_tokens(making) == tokens >= steps.budget()
    assert trained.metrics["curve"][-2]["tokens"] < steps.budget()
    assert trained.metrics["kept_step"] == trained.metrics["steps"], "validation does not choose the actor"
    assert len({row.task_id for row in rows}) == len(rows) / 4, "all are of different tasks"


def test_its_curve_has_a_point_after_every_few_steps_and_its_end(studied: SeedJob) -> None:
    points = curves([studied])["grpo"][0]
    trained = studied.steps(ReadOnlyStepCache, Silent()).making(GRPO)[0]
    recorded = trained.metrics["curve"]
    inner = [row for row in recorded[:-1] if row["step"] % 2 == 0]
    assert len(points) == 1 + len(inner) + 1
    assert [point.tokens for point in points] == [
        0,
        *(row["tokens"] for row in inner),
        trained.metrics["completion_tokens"],
    ]
    assert [point.success for point in points[1:-1]] == [row["validation"] for row in inner]
    assert [point.seconds for point in points] == sorted(point.seconds for point in points)
    took = trained.seconds - trained.metrics["validation_seconds"]
    assert 0 < trained.metrics["validation_seconds"] < trained.seconds
    assert points[-1].seconds == pytest.approx(took), "validation is not learning"
    assert points[-2].seconds < took


def test_the_folder_of_the_job_is_done(studied: SeedJob) -> None:
    assert studied.is_done()
    assert Path(studied.folder / studied.run).is_dir()
