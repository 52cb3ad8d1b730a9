"""The options of `sweet train`. Those of its stages are in a recipe (`sweet.pipeline.recipe`)."""

from __future__ import annotations

from pydantic import Field

from sweet.stages.base import OPERATIONAL, TrustConfig, VerifiedConfig, about
from sweet.stages.options import (
    AgentConfig,
    AgentUrlConfig,
    HarnessConfig,
    HoldoutConfig,
    RetrainConfig,
    SeedConfig,
    SimConfig,
    SimUrlConfig,
)
from sweet.stages.prices import PricedConfig
from sweet.training.config import LoggedConfig


class LoopConfig(
    VerifiedConfig,
    TrustConfig,
    PricedConfig,
    LoggedConfig,
    RetrainConfig,
    SimUrlConfig,
    SimConfig,
    AgentUrlConfig,
    HarnessConfig,
    AgentConfig,
    SeedConfig,
    HoldoutConfig,
):
    main_options = (
        *("recipe", "set_", "algorithm", "task", "tasks", "agent"),
        *("sim", "sim_url", "rounds", "train_tasks", "samples", "holdout"),
    )

    recipe: str | None = Field(default=None, json_schema_extra=about("Method", OPERATIONAL))
    """The options of all stages: a TOML file, or a packaged one by name. Default: that of the run (RUN/recipe.toml),
    for a new run micro with the packaged agent, and paper with any other."""
    set_: list[str] = Field(default_factory=list, json_schema_extra=about("Method", OPERATIONAL))
    """An option of a stage, as STAGE.OPTION=VALUE (rank.fraction=0.2), instead of the recipe's; may be given several
    times. evaluation.OPTION is one of the rollouts that only evaluate; servers.sim.OPTION and prices.agent.OPTION are
    those of the other tables."""
    algorithm: str = Field(default="sweet", json_schema_extra=about("Method"))
    """What the actor learns by: sweet; a credit rule that learns online in many small steps (grpo, rloo, rft, …); one
    that learns from recorded dialogues (multi-turn-dpo); or that of an installed package. docs/credit.md lists all."""
    rounds: int = Field(default=1, ge=1, json_schema_extra=about("Method"))
    """Actors trained one after the other: each plays the training tasks for the next, which learns from all rounds. An
    algorithm that learns online has one round, of train-online.steps."""
    early_stop: bool = Field(default=True, json_schema_extra=about("Method"))
    """With several rounds: evaluate each actor on validation tasks too, end when it no longer helps, and keep the best
    one. Otherwise, and where there are no validation tasks, the last one is kept."""
    patience: int = Field(default=1, ge=1, json_schema_extra=about("Method"))
    """End after this many rounds in a row that are not better on validation tasks than the best one before."""
    train_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Play only the first N training tasks."""
    samples: int = Field(default=4, ge=2, json_schema_extra=about("Data"))
    """Dialogues for each training task; those of an online training's steps are train-online.group."""
    eval_tasks: int | None = Field(default=None, ge=1, json_schema_extra=about("Data"))
    """Evaluate on only the first N test tasks, and at most N validation tasks."""
    eval_samples: int = Field(default=1, ge=1, json_schema_extra=about("Data"))
    """Dialogues for each task of an evaluation."""
    redo: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Do finished steps again whose settings have changed since; otherwise changed settings are refused, with what they
    would repeat."""
