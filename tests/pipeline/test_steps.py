"""A step is done once, and again where something that it depends on has changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from sweet.errors import Interrupted, SweetError
from sweet.pipeline.steps import ReadOnlyStepCache, Step, StepCache, StepMissing
from sweet.runs.manifest import Attempt, Kind
from sweet.runs.run import Run
from sweet.runs.stages import Stage
from sweet.stages.base import OPERATIONAL, Reporter, Silent, StageConfig, StageResult
from sweet.stages.record import Record
from sweet.study.study_steps import seconds
from sweet.tasks.registry import task_kind


class First(StageConfig):
    size: int = 1
    fails: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    also: str = Field(default="", json_schema_extra=OPERATIONAL)
    stopped: bool = Field(default=False, json_schema_extra=OPERATIONAL)


class Second(StageConfig):
    from_: str


def first(run: Run, config: First, reporter: Reporter) -> StageResult:
    with run.attempt("rollout", config) as attempt:
        draft = attempt.start_artifact("rollouts")
        draft.path.write_text("x" * config.size)
        if config.fails:
            raise SweetError("No.")
        attempt.metrics["also"] = config.also
        artifact = attempt.finish_artifact(draft)
    return StageResult("rollout", run.path, Record(), [artifact], stopped=config.stopped)


def second(run: Run, config: Second, reporter: Reporter) -> StageResult:
    source = run.find("rollouts", config.from_, needed_by="eval")
    with run.attempt("eval", config, inputs=[source]) as attempt:
        draft = attempt.start_artifact("scores")
        draft.path.write_text(run.file(source).read_text() + "y")
        artifact = attempt.finish_artifact(draft)
    return StageResult("eval", run.path, Record(), [artifact])


def toy(name: str, makes: Kind, config: str, run: str) -> Stage:
    """Return a stage of this module."""
    here = f"{__name__}:{{}}".format
    return Stage(
        name=name,
        makes=makes,
        config_reference=here(config),
        run_reference=here(run),
        plan_reference=here("none"),
        metrics_reference="sweet.stages.record:Record",
    )


TOYS = (toy("rollout", "rollouts", "First", "first"), toy("eval", "scores", "Second", "second"))


@pytest.fixture
def cache(tmp_path: Path) -> StepCache:
    return StepCache(Run.create(tmp_path / "run", task_kind("code").name), Silent(), TOYS)


def attempts(cache: StepCache) -> list[str]:
    return [attempt.id for attempt in cache.run.manifest().attempts]


def test_a_finished_step_is_found_and_a_changed_setting_is_another_step(cache: StepCache) -> None:
    step = cache.do(First(size=2))
    again = StepCache(Run.open(cache.run.path), Silent(), TOYS).do(First(size=2))
    assert (again.id, again.attempt.id) == (step.id, step.attempt.id)
    assert attempts(cache) == ["rollout-1"]
    assert cache.do(First(size=3)).id == "rollouts-2"
    assert cache.do(First(size=2)).id == "rollouts-1", "the older step is still found"
    assert step.seconds >= 0


def test_a_failed_step_is_tried_again(cache: StepCache) -> None:
    with pytest.raises(SweetError):
        cache.do(First(fails=True))
    assert cache.do(First()).attempt.id == "rollout-2"


def test_a_step_with_a_changed_input_or_output_is_done_again(cache: StepCache) -> None:
    source = cache.do(First())
    made = cache.do(Second(from_=source.id))
    cache.file(made).write_text("by hand")
    assert cache.do(Second(from_=source.id)).id == "scores-2"
    cache.file(source).write_text("longer, by hand")
    assert cache.find(Second(from_=source.id)) is None
    cache.file(source).unlink()
    assert cache.find(First()) is None


def test_operational_fields_that_change_the_metrics_can_be_matched(cache: StepCache) -> None:
    cache.do(First(also="a"))
    assert cache.do(First(also="b")).metrics == {"also": "a"}
    assert cache.do(First(also="b"), matching=("also",)).metrics == {"also": "b"}


def test_a_read_only_cache_does_no_step(cache: StepCache) -> None:
    cache.do(First())
    reading = ReadOnlyStepCache(cache.run, Silent(), TOYS)
    assert reading.do(First()).id == "rollouts-1"
    with pytest.raises(StepMissing):
        reading.do(First(size=2))
    assert attempts(cache) == ["rollout-1"]


def test_an_interrupt_in_the_last_dialogues_of_a_step_ends_the_loop_after_it(cache: StepCache) -> None:
    with pytest.raises(Interrupted):
        cache.do(First(stopped=True))
    assert cache.do(First()).attempt.id == "rollout-1"


def test_the_seconds_of_a_resumed_training_are_those_that_it_counts() -> None:
    """Its last attempt took 18 s, of which a comparison at equal seconds subtracted 53 s of validation."""
    started = datetime(2026, 1, 1, tzinfo=UTC)
    attempt = Attempt(
        id="train-online-3",
        stage="train-online",
        started=started,
        finished=started + timedelta(seconds=18),
        pid=1,
        host="here",
        digest="",
        log="logs/train-online-3.log",
    )
    artifact: Any = None
    counted = attempt.model_copy(update={"metrics": {"seconds": 509.0, "validation_seconds": 53.0}})
    assert [Step(one, artifact).seconds for one in (attempt, counted)] == [18.0, 509.0]
    assert seconds([Step(counted, artifact)]) == 456.0
