"""Rates come from the attempt that is most alike, say where they are from, and are None where nobody can tell."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweet.errors import UsageError
from sweet.runs.run import Run
from sweet.stages.base import StageConfig
from sweet.stages.plans import PlanBuilder
from sweet.stages.rates import GPUS, HOUR, STARTUP, EarlierAttempt, finished, share, times, total
from sweet.stages.record import Record


class Playing(StageConfig):
    agent: str = "a"
    """Agent."""
    workers: int = 1
    """Workers."""


class Work(Record):
    dialogues: int = 0
    """To play."""


def attempt(run: Run, *, gpus: int | None = 0, metrics: dict[str, Any] | None = None, **settings: Any) -> str:
    with run.attempt("rollout", Playing(**settings), environment={GPUS: gpus}) as one:
        draft = one.start_artifact("rollouts")
        draft.path.write_text("{}\n{}\n")
        one.metrics.update(metrics or {"episodes": 2, "turns": 8})
        one.finish_artifact(draft, rows=2)
        return one.id


def builder(run: Run | None, *others: Run, gpus: int | None = 0, kind: str = "code", **settings: Any) -> PlanBuilder:
    return PlanBuilder(
        "rollout",
        run,
        [str(other.path) for other in others],
        kind=kind,
        settings=Playing(**settings).model_dump(),
        gpus=gpus,
        decides=("agent", "gpu"),
        compared=("workers",),
    )


def turns(earlier: EarlierAttempt) -> float | None:
    return share(earlier.metric("turns"), earlier.metric("episodes"))


def episodes(earlier: EarlierAttempt) -> float | None:
    return earlier.metric("episodes")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", task="code")


@pytest.fixture
def other(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "other", task="code")


def test_without_attempts_there_is_no_rate(run: Run) -> None:
    for empty in (builder(None), builder(run)):
        assert empty.rate("turns", "a dialogue", turns) is None
        assert empty.seconds_per("dialogue", episodes) is None
        plan = empty.build(Work(dialogues=7), seconds=None).as_json()
        assert plan["rates"] == {"turns": None, "seconds": None}
        assert (plan["dialogues"], plan["hours"], plan["gpu_hours"]) == (7, None, None)


def test_the_newest_alike_of_the_run_tells(run: Run, other: Run) -> None:
    attempt(run, metrics={"episodes": 2, "turns": 2})
    newest = attempt(run, workers=3)
    attempt(run, agent="b", metrics={"episodes": 1, "turns": 9})
    attempt(other)
    found = builder(run, other)
    assert found.rate("turns", "a dialogue", turns) == 4
    told = {"value": 4.0, "unit": "a dialogue", "from": f"{run.path}:{newest}", "differs": ["workers"]}
    assert found.rates["turns"] is not None
    assert found.rates["turns"].as_json() == told
    assert found.seconds_per("dialogue", episodes) is not None


def test_another_run_tells_where_it_is_more_alike(run: Run, other: Run) -> None:
    attempt(run, agent="b")
    there = attempt(other)
    assert builder(run).rate("turns", "a dialogue", turns) == 4
    assert builder(run).seconds_per("dialogue", episodes) is None, "another agent's pace says nothing"
    found = builder(run, other)
    assert found.seconds_per("dialogue", episodes) is not None
    assert found.rates["seconds"] is not None
    assert found.rates["seconds"].source == f"{other.path}:{there}"


def test_a_gpu_decides_the_pace_and_who_does_not_know_is_not_asked(run: Run) -> None:
    attempt(run, gpus=0)
    assert builder(run, gpus=2).seconds_per("dialogue", episodes) is None
    attempt(run, gpus=1)
    assert builder(run, gpus=2).seconds_per("dialogue", episodes) is not None
    assert builder(run, gpus=None).seconds_per("dialogue", episodes) is None


def test_more_that_works_is_faster_by_as_much_and_it_is_said(run: Run) -> None:
    attempt(run)
    once, twice = builder(run), builder(run)
    alone = once.seconds_per("dialogue", episodes, lambda earlier: 1.0)
    assert alone is not None
    assert twice.seconds_per("dialogue", episodes, lambda earlier: 2.0) == pytest.approx(alone / 2)
    assert (once.assumed, len(twice.assumed)) == ([], 1)


def test_what_failed_or_is_of_another_kind_tells_nothing(run: Run, other: Run) -> None:
    with suppress(ZeroDivisionError), run.attempt("rollout", Playing(), environment={GPUS: 0}) as one:
        one.start_artifact("rollouts").path.write_text("{}\n")
        raise ZeroDivisionError
    assert finished(run.manifest(), run.path, "rollout") == []
    attempt(other)
    assert builder(None, other).rate("turns", "a dialogue", turns) == 4
    assert builder(None, other, kind="html").rate("turns", "a dialogue", turns) is None
    with pytest.raises(UsageError):
        PlanBuilder("rollout", None, ["nowhere"], kind="code", settings={}, gpus=0, decides=(), compared=())


def test_all_attempts_that_wrote_an_artifact_took_their_time(run: Run) -> None:
    attempt(run)
    manifest = run.manifest()
    first = manifest.attempts[0]
    before = first.model_copy(update={"id": "rollout-9", "finished": first.started + timedelta(seconds=50)})
    manifest.attempts.insert(0, before)
    seconds = finished(manifest, run.path, "rollout")[0].seconds
    assert seconds is not None
    assert 50 <= seconds < 60
    manifest.attempts[0] = before.model_copy(update={"finished": None})
    assert finished(manifest, run.path, "rollout")[0].seconds is None, "nobody knows how long it took"


def test_loading_models_counts_once_however_much_is_done(run: Run) -> None:
    attempt(run, metrics={"episodes": 10})
    path = run.path / "manifest.json"
    manifest = json.loads(path.read_text())
    [one] = manifest["attempts"]
    one["finished"] = (datetime.fromisoformat(one["started"]) + timedelta(seconds=60)).isoformat()
    one["environment"][STARTUP] = 50.0
    path.write_text(json.dumps(manifest))
    plan = builder(run)
    each = plan.seconds_per("dialogue", episodes)
    assert each == 1
    assert plan.build(Work(), seconds=times(100, each)).hours == pytest.approx(150 / HOUR, rel=1e-5)
    assert plan.rates["startup"] is not None
    assert (plan.rates["startup"].value, plan.rates["startup"].unit) == (50, "s")
    assert plan.build(Work(), seconds=0.0).hours == 0, "nothing is loaded where nothing is missing"


@pytest.mark.parametrize("value", [None, "many", True, [1]])
def test_a_metric_that_is_no_number_is_none(value: Any) -> None:
    assert EarlierAttempt("r:x", {}, {"turns": value}, None, None, None).metric("turns") is None


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=4))
def test_what_is_unknown_stays_unknown(values: list[float | None]) -> None:
    unknown = None in values
    assert (times(*values) is None) is unknown
    assert (total(*values) is None) is unknown
    assert share(1.0, values[0]) is None if not values[0] else share(1.0, values[0]) == 1.0 / values[0]


def test_hours_and_gpu_hours(run: Run) -> None:
    plan = builder(run, gpus=4).build(Work(), seconds=1800.0, flops=1.23456789e20, size=12.4).as_json()
    assert (plan["hours"], plan["gpus"], plan["gpu_hours"], plan["bytes"]) == (0.5, 4, 2.0, 12)
    assert plan["flops"] == 1.23457e20
