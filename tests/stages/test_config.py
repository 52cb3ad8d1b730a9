"""Configurations of stages: unknown names are refused, and the digest is of what decides the outcome."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from sweet.stages.base import OPERATIONAL, StageConfig, digest_of


class Config(StageConfig):
    size: int = 1
    order: str = "any"
    wait: float = Field(default=1.0, json_schema_extra=OPERATIONAL)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Config.model_validate({"sizes": 3})


def test_the_digest_is_that_of_the_settings_that_decide_the_outcome() -> None:
    config = Config(size=3, wait=9.0)
    assert config.outcome_settings() == {"size": 3, "order": "any"}
    assert config.digest() == digest_of({"size": 3, "order": "any"}) == Config(size=3).digest()
    assert Config().digest() != config.digest()
