"""A step is done once, and once more where anything it hangs on has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from sweet.errors import SweetError
from sweet.runs.run import Run
from sweet.stages.base import OPERATIONAL, Reporter, Silent, StageConfig, StageResult
from sweet.study.step_cache import Function, Ledger, NotDone, ReadOnly
from sweet.tasks.registry import task_kind


class First(StageConfig):
    size: int = 1
    fails: bool = Field(default=False, json_schema_extra=OPERATIONAL)
    also: str = Field(default="", json_schema_extra=OPERATIONAL)


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
    return StageResult("rollout", run.path, {}, [artifact])


def second(run: Run, config: Second, reporter: Reporter) -> StageResult:
    source = run.find("rollouts", config.from_, needed_by="eval")
    with run.attempt("eval", config, inputs=[source]) as attempt:
        draft = attempt.start_artifact("scores")
        draft.path.write_text(run.file(source).read_text() + "y")
        artifact = attempt.finish_artifact(draft)
    return StageResult("eval", run.path, {}, [artifact])


TOYS: dict[type[StageConfig], tuple[str, Function]] = {First: ("rollout", first), Second: ("eval", second)}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Run.create(tmp_path / "run", task_kind("code").name), Silent(), TOYS)


def attempts(ledger: Ledger) -> list[str]:
    return [attempt.id for attempt in ledger.run.manifest().attempts]


def test_a_finished_step_is_found_and_a_changed_setting_is_another_step(ledger: Ledger) -> None:
    step = ledger.do(First(size=2))
    again = Ledger(Run.open(ledger.run.path), Silent(), TOYS).do(First(size=2))
    assert (again.id, again.attempt.id) == (step.id, step.attempt.id)
    assert attempts(ledger) == ["rollout-1"]
    assert ledger.do(First(size=3)).id == "rollouts-2"
    assert ledger.do(First(size=2)).id == "rollouts-1", "the older one is still known"
    assert step.seconds >= 0


def test_what_fails_is_tried_again(ledger: Ledger) -> None:
    with pytest.raises(SweetError):
        ledger.do(First(fails=True))
    assert ledger.do(First()).attempt.id == "rollout-2"


def test_a_step_is_done_again_where_its_input_or_its_output_is_not_what_it_was(ledger: Ledger) -> None:
    source = ledger.do(First())
    made = ledger.do(Second(from_=source.id))
    ledger.file(made).write_text("by hand")
    assert ledger.do(Second(from_=source.id)).id == "scores-2"
    ledger.file(source).write_text("longer, by hand")
    assert ledger.find(Second(from_=source.id)) is None
    ledger.file(source).unlink()
    assert ledger.find(First()) is None


def test_what_the_metrics_tell_besides_can_tell_steps_apart(ledger: Ledger) -> None:
    ledger.do(First(also="a"))
    assert ledger.do(First(also="b")).metrics == {"also": "a"}
    assert ledger.do(First(also="b"), told=("also",)).metrics == {"also": "b"}


def test_a_ledger_that_only_reads_does_nothing(ledger: Ledger) -> None:
    ledger.do(First())
    reading = ReadOnly(ledger.run, Silent(), TOYS)
    assert reading.do(First()).id == "rollouts-1"
    with pytest.raises(NotDone):
        reading.do(First(size=2))
    assert attempts(ledger) == ["rollout-1"]
