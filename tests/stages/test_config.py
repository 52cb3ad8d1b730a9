"""Configurations of stages: unknown names are refused, and the digest is of what decides the outcome."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from sweet.stages.base import OPERATIONAL, StageConfig, digest_of


class Config(StageConfig):
    size: int = 1
    order: str = "any"
    wait: float = Field(default=1.0, json_schema_extra=OPERATIONAL)
    rank: int | None = None
    names: tuple[str, ...] = ()
    fast: bool = False
    strict: bool | None = None


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Config.model_validate({"sizes": 3})


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", True), ("wait", True), ("rank", False), ("rank", True), ("order", True), ("names", True)],
)
def test_a_switch_is_no_number_and_no_name(name: str, value: bool) -> None:
    with pytest.raises(ValidationError, match=r"1 validation error for Config\n" + name + r"\n.*must be a value"):
        Config.model_validate({name: value})
    assert Config(fast=True, strict=True) == Config.model_validate({"fast": True, "strict": True})


@pytest.mark.parametrize(("name", "value"), [("order", ""), ("size", ""), ("rank", ""), ("names", [""])])
def test_an_empty_text_is_no_value(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=r"1 validation error for Config\n" + name + r"\n.*must not be empty"):
        Config.model_validate({name: value})
    assert Config(names=()).names == ()


def test_the_digest_is_that_of_the_settings_that_decide_the_outcome() -> None:
    config = Config(size=3, wait=9.0)
    deciding = {"size": 3, "order": "any", "rank": None, "names": [], "fast": False, "strict": None}
    assert config.outcome_settings() == deciding
    assert config.digest() == digest_of(deciding) == Config(size=3).digest()
    assert Config().digest() != config.digest()
