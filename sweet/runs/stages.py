"""The stages of the pipeline, in one table.

A stage reads artifacts of a run and makes one of its own kind. Every module that has to know which stages there are,
what they make or what comes next reads `STAGES`. This package is below those of the stages and stays light, so a stage
names its classes and functions by reference, `module:object`, as entry points do; a property imports one when it is
first used.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from sweet import collector

if TYPE_CHECKING:
    from sweet.runs.manifest import Kind

RECIPE = "recipe.toml"
"""The settings of `sweet train`, in its run."""

ROUND_SEEDS = 1000
"""Difference between the seeds of two rounds, so large that runs with consecutive seeds share none."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of the pipeline.

    Attributes:
        name: of its command, and of its attempts in the manifest.
        makes: the kind of artifact that it writes.
        reads: the kinds that `--from` may name; the first is the default.
        resumes: whether an attempt goes on with the artifact that an interrupted one with the same settings began:
            always, if asked to (`--resume`), or never, so that the work is done again.
        reopens: whether an attempt that ended well can be gone on with like an interrupted one.
        config_reference: its configuration, a `sweet.stages.base.StageConfig`.
        run_reference: its function, `(run, config, reporter) -> StageResult`.
        plan_reference: its plan, for `--dry-run`: `(run, config, reporter) -> Plan`, changing nothing.
        metrics_reference: the record of its metrics, a `sweet.stages.record.Record`.
    """

    name: str
    makes: Kind
    reads: tuple[Kind, ...] = ()
    resumes: Literal["always", "if asked", "never"] = "never"
    reopens: bool = False
    config_reference: str
    run_reference: str
    plan_reference: str
    metrics_reference: str

    @property
    def config(self) -> type[Any]:
        """The class of its configuration."""
        config_class: type[Any] = resolve_name(self.config_reference)
        return config_class

    @property
    def run(self) -> Callable[..., Any]:
        """The function that runs it."""
        return _imported(self.run_reference)

    @property
    def plan(self) -> Callable[..., Any]:
        """The function that plans it."""
        return _imported(self.plan_reference)

    def command(self, settings: Mapping[str, Any], run: str | Path) -> str:
        """Return the command line that runs it from the beginning with recorded settings, without those that equal the
        defaults."""
        return shlex.join(["sweet", self.name, str(run), *self.config.option_words({**settings, "resume": False})])


def _imported(reference: str) -> Callable[..., Any]:
    with collector.paused():  # the module of a stage that computes imports torch
        function: Callable[..., Any] = resolve_name(reference)
    return function


STAGES = (
    Stage(
        name="rollout",
        makes="rollouts",
        resumes="always",
        config_reference="sweet.rollouts.config:RolloutConfig",
        run_reference="sweet.rollouts.stage:run_rollout",
        plan_reference="sweet.rollouts.plan:plan_rollout",
        metrics_reference="sweet.rollouts.metrics:RolloutMetrics",
    ),
    Stage(
        name="play",
        makes="rollouts",
        resumes="always",
        reopens=True,
        config_reference="sweet.rollouts.play.config:PlayConfig",
        run_reference="sweet.rollouts.play.stage:run_play",
        plan_reference="sweet.rollouts.play.stage:plan_play",
        metrics_reference="sweet.rollouts.play.config:PlayMetrics",
    ),
    Stage(
        name="gateway",
        makes="rollouts",
        resumes="always",
        reopens=True,
        config_reference="sweet.rollouts.gateway.config:GatewayConfig",
        run_reference="sweet.rollouts.gateway.stage:run_gateway",
        plan_reference="sweet.rollouts.gateway.stage:plan_gateway",
        metrics_reference="sweet.rollouts.metrics:RolloutMetrics",
    ),
    Stage(
        name="eval",
        makes="scores",
        reads=("rollouts",),
        config_reference="sweet.scoring.config:EvalConfig",
        run_reference="sweet.scoring.stage:run_eval",
        plan_reference="sweet.scoring.stage:plan_eval",
        metrics_reference="sweet.scoring.metrics:EvalMetrics",
    ),
    Stage(
        name="label",
        makes="preferences",
        reads=("scores",),
        config_reference="sweet.preferences.config:LabelConfig",
        run_reference="sweet.preferences.label:run_label",
        plan_reference="sweet.preferences.label:plan_label",
        metrics_reference="sweet.preferences.label:LabelMetrics",
    ),
    Stage(
        name="train-critic",
        makes="critic",
        resumes="if asked",
        reads=("preferences", "scores"),
        config_reference="sweet.training.config:TrainCriticConfig",
        run_reference="sweet.training.stage:run_train_critic",
        plan_reference="sweet.training.stage:plan_train_critic",
        metrics_reference="sweet.training.metrics:TrainMetrics",
    ),
    Stage(
        name="rank",
        makes="candidates",
        resumes="always",
        reads=("critic",),
        config_reference="sweet.ranking.config:RankConfig",
        run_reference="sweet.ranking.stage:run_rank",
        plan_reference="sweet.ranking.plan:plan_rank",
        metrics_reference="sweet.ranking.metrics:RankMetrics",
    ),
    Stage(
        name="pair",
        makes="pairs",
        reads=("candidates",),
        config_reference="sweet.preferences.config:PairConfig",
        run_reference="sweet.preferences.pair:run_pair",
        plan_reference="sweet.preferences.pair:plan_pair",
        metrics_reference="sweet.preferences.pair:PairMetrics",
    ),
    Stage(
        name="train-actor",
        makes="actor",
        resumes="if asked",
        reads=("pairs", "preferences", "scores", "rollouts", "candidates"),
        config_reference="sweet.training.config:TrainActorConfig",
        run_reference="sweet.training.stage:run_train_actor",
        plan_reference="sweet.training.stage:plan_train_actor",
        metrics_reference="sweet.training.metrics:TrainMetrics",
    ),
    Stage(
        name="train-online",
        makes="actor",
        resumes="if asked",
        config_reference="sweet.online.config:TrainOnlineConfig",
        run_reference="sweet.online.stage:run_train_online",
        plan_reference="sweet.online.stage:plan_train_online",
        metrics_reference="sweet.online.metrics:OnlineMetrics",
    ),
)
"""In the order of the pipeline. Of the stages that make a kind, the first is the one that programs call."""

KINDS: tuple[Kind, ...] = tuple(dict.fromkeys(stage.makes for stage in STAGES))
"""Kinds of artifacts, in the order of the pipeline."""


def stage_named(name: str) -> Stage | None:
    """The stage of a name; None where it is none of the pipeline, such as `data-import`."""
    return next((stage for stage in STAGES if stage.name == name), None)


def stage_making(kind: str) -> Stage:
    """The stage that makes artifacts of a kind, the first of several.

    Raises:
        KeyError: there is no such kind.
    """
    stage = next((stage for stage in STAGES if stage.makes == kind), None)
    if stage is None:
        raise KeyError(kind)
    return stage
