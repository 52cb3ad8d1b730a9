"""Records are written as the JSON objects that they stand for, and read from those of other versions."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from sweet.runs.manifest import Artifact, Kind, now
from sweet.stages.meta import RolloutsMeta, ScoresMeta, TrainedMeta
from sweet.stages.record import Flat, Rate, Record, UnknownRate, documentation
from tests.interrupts import interrupts, lines


class Inner(Record):
    depth: int
    """Metres."""


class Sample(Record):
    count: int
    """How many
    there are."""
    rates: Annotated[dict[str, Rate | UnknownRate], Flat({"hits": "share of hits"})] = Field(default_factory=dict)
    """Rates of the kind."""
    source: str | None = Field(default=None, alias="from")
    """Where it is from."""
    inner: Annotated[Inner | None, Flat()] = None
    share: Rate | None = None
    """A share."""
    parts: dict[str, Inner] = Field(default_factory=dict)
    """By name."""


def test_what_is_not_given_is_absent_and_none_is_null() -> None:
    assert Sample(count=1).as_json() == {"count": 1}
    assert Sample(count=1, source=None).as_json() == {"count": 1, "from": None}


def test_an_interrupt_while_a_record_is_written_is_raised_as_such() -> None:
    """In a serializer of pydantic it became a warning, and the program went on."""
    record = Sample(count=1, inner=Inner(depth=1), parts={"a": Inner(depth=2)})
    assert interrupts(record.as_json) == lines(record.as_json) > 20


def test_keys_come_in_the_order_of_the_fields() -> None:
    record = Sample(
        parts={"a": Inner(depth=2)},
        share=Rate(value=0.5, ci_low=0.25, ci_high=0.75),
        inner=Inner(depth=1),
        source="x",
        rates={"hits": Rate(value=1.0, ci_low=0.9, ci_high=1.0), "misses": UnknownRate()},
        count=3,
    )
    assert list(record.as_json().items()) == [
        ("count", 3),
        ("hits", 1.0),
        ("hits_ci_low", 0.9),
        ("hits_ci_high", 1.0),
        ("misses", None),
        ("misses_ci_low", None),
        ("misses_ci_high", None),
        ("from", "x"),
        ("depth", 1),
        ("share", 0.5),
        ("share_ci_low", 0.25),
        ("share_ci_high", 0.75),
        ("parts", {"a": {"depth": 2}}),
    ]


def test_a_copy_with_more_is_written_with_more() -> None:
    assert Sample(count=1).model_copy(update={"source": "y"}).as_json() == {"count": 1, "from": "y"}


def test_a_record_is_documented_by_its_docstrings() -> None:
    assert list(documentation(Sample)) == [
        ("count", "How many there are."),
        ("hits", "share of hits"),
        ("from", "Where it is from."),
        ("depth", "Metres."),
        ("share", "A share."),
        ("parts", "By name."),
    ]


def test_a_record_is_frozen_and_knows_its_fields() -> None:
    with pytest.raises(ValidationError):
        Sample(count=1).count = 2  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Sample.model_validate({"count": 1, "other": 2})


def artifact(kind: Kind, **meta: object) -> Artifact:
    path = f"{kind}/{kind}-1"
    return Artifact.model_validate(
        {"id": f"{kind}-1", "kind": kind, "path": path, "attempt": "a-1", "created": now(), "meta": meta}
    )


def test_meta_of_other_versions_is_read() -> None:
    meta = RolloutsMeta.of(artifact("rollouts", agent="micro", samples="many", protocol="soup", colour="red"))
    assert (meta.agent, meta.samples, meta.protocol, meta.tasks) == ("micro", None, None, None)
    assert meta.as_json() == {"agent": "micro"}
    assert TrainedMeta.of(artifact("critic")) == TrainedMeta()


def test_meta_of_scores_keeps_what_the_scorer_says() -> None:
    written = {"similarity": "pixels", "scorer": "pixels", "rollouts": "rollouts-1"}
    meta = ScoresMeta.of(artifact("scores", **written))
    assert (meta.scorer, meta.rollouts) == ("pixels", "rollouts-1")
    assert list(meta.as_json().items()) == list(written.items())
    assert ScoresMeta.of(artifact("scores")).scorer is None
