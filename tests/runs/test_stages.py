"""The table of stages: it covers every kind, and every reference in it resolves to what it should."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pkgutil import resolve_name
from typing import get_args

import pytest

from sweet.cli.group import load
from sweet.credit.names import RULES
from sweet.credit.registry import rule_class
from sweet.rollouts.play.stage import run_play
from sweet.runs.manifest import Kind
from sweet.runs.stages import KINDS, STAGES, Stage, stage_making, stage_named
from sweet.stages.base import PlannedConfig
from sweet.stages.record import Record

each_stage = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)


def test_every_kind_is_made_by_one_stage() -> None:
    assert get_args(Kind) == KINDS
    assert [stage_making(kind).makes for kind in KINDS] == list(KINDS)
    with pytest.raises(KeyError):
        stage_making("gold")


def test_names_are_found() -> None:
    assert [stage_named(stage.name) for stage in STAGES] == list(STAGES)
    assert stage_named("data-import") is None


def test_a_stage_reads_what_an_earlier_one_makes() -> None:
    for number, stage in enumerate(STAGES):
        assert set(stage.reads) <= set(KINDS[:number])
        assert bool(stage.reads) == (stage.name not in ("rollout", "play", "gateway", "train-online")), (
            "these begin with tasks"
        )


@each_stage
def test_references_resolve(stage: Stage) -> None:
    assert issubclass(stage.config, PlannedConfig)
    assert issubclass(resolve_name(stage.metrics_reference), Record)
    for function in (stage.run, stage.plan):
        assert inspect.isfunction(function)
        parameters = inspect.signature(function, eval_str=True).parameters
        assert list(parameters)[:3] == ["run", "config", "reporter"]
        needed = {name for name, one in list(parameters.items())[3:] if one.default is inspect.Parameter.empty}
        assert needed == ({"interface"} if function is run_play else set()), "by which the person plays"
        assert parameters["config"].annotation is stage.config


@each_stage
def test_the_command_of_a_stage_is_the_one_in_the_table(stage: Stage) -> None:
    spec = load(stage.name).spec
    assert (spec.configuration, spec.is_stage) == (stage.config_reference, True)


def test_an_actor_learns_from_the_kinds_that_the_table_says() -> None:
    reads = dict.fromkeys(rule_class(name).reads for name in RULES)
    assert set(reads) <= set(stage_making("actor").reads)
    assert next(iter(reads)) == stage_making("actor").reads[0], "the default rule reads the default kind"


def test_the_table_is_light() -> None:
    """Completion reads it while somebody types."""
    program = "import sys, sweet.runs.stages; assert not {'pydantic', 'torch', 'sweet.rollouts'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
