"""Configurations with renamed fields and values: records and digests of older versions stay valid."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from sweet.ranking.config import RankConfig
from sweet.rollouts.config import RolloutConfig
from sweet.stages.base import ADDED, OPERATIONAL, StageConfig, digest_of, formerly
from sweet.training.config import TrainActorConfig, TrainCriticConfig


class Renamed(StageConfig):
    size: int = Field(default=1, json_schema_extra=formerly("count"))
    order: str = Field(default="any", json_schema_extra=formerly("sequence", {"kin": "grouped"}))
    wait: float = Field(default=1.0, json_schema_extra={**OPERATIONAL, **formerly("patience")})


FORMER = {"count": 3, "sequence": "kin", "patience": 2.0}
CURRENT = {"size": 3, "order": "grouped", "wait": 2.0}


def test_former_names_and_values_are_accepted() -> None:
    assert Renamed.model_validate(FORMER) == Renamed.model_validate(CURRENT)
    assert Renamed.model_validate(FORMER).model_dump() == CURRENT
    assert Renamed.current(FORMER) == Renamed.current(CURRENT) == CURRENT


def test_unknown_names_and_both_names_are_refused() -> None:
    for settings in ({"counts": 3}, {"count": 3, "size": 3}):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            Renamed.model_validate(settings)


def test_the_digest_is_that_of_the_former_spelling() -> None:
    assert Renamed.model_validate(CURRENT).digest() == digest_of({"count": 3, "sequence": "kin"})
    assert Renamed.model_validate(CURRENT).outcome_settings() == {"size": 3, "order": "grouped"}


def test_a_field_that_was_added_later_counts_in_the_digest_only_where_it_is_set() -> None:
    class Extended(Renamed):
        context: str | None = Field(default=None, json_schema_extra=ADDED)

    assert Extended.model_validate(CURRENT).digest() == Renamed.model_validate(CURRENT).digest()
    both = [Extended(size=3, context=value).digest() for value in ("hidden", "dialogue")]
    assert len({Renamed(size=3).digest(), *both}) == 3
    assert Extended(size=3, context="hidden").outcome_settings()["context"] == "hidden"


def test_a_changed_default_is_another_setting() -> None:
    class Changed(Renamed):
        order: str = Field(default="auto", json_schema_extra=formerly("sequence", {"kin": "grouped"}, default="any"))

    assert Changed.former_defaults() == {"order": "any"}
    assert Renamed.former_defaults() == {}
    assert Changed(order="any").digest() == Renamed().digest() != Changed().digest()


def test_digests_of_version_0_1_are_the_same() -> None:
    """The digests were computed before the fields were renamed."""
    assert RolloutConfig(num_tasks=3, retry_timeout=5).digest() == "ac0b96a12f739bb3"
    assert RankConfig(startup_timeout=5).digest() == "51f0aa3634398d30"
    assert TrainCriticConfig(shuffle="examples").digest() == "c76e535f5754b871", "the default of that version"
    assert TrainCriticConfig(shuffle="grouped").digest() == "d69b35f4c05ec1ee"
    assert TrainActorConfig(shuffle="grouped").digest() == "a3e18a1f1c002834"
