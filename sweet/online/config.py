"""The options of `sweet train-online`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweet.rollouts.config import RolloutConfig, as_rollout
from sweet.stages.base import PlannedConfig, about
from sweet.stages.options import (
    ConcurrencyConfig,
    DeadlineConfig,
    DialogueConfig,
    HarnessConfig,
    LocalModelsConfig,
    ScoringConfig,
)
from sweet.stages.prices import PricedConfig
from sweet.tasks.splits import TRAIN, VALIDATION
from sweet.training.config import RuleConfig, TrainingConfig


class TrainOnlineConfig(
    PlannedConfig,
    PricedConfig,
    DeadlineConfig,
    ConcurrencyConfig,
    LocalModelsConfig,
    HarnessConfig,
    TrainingConfig,
    RuleConfig,
    ScoringConfig,
    DialogueConfig,
):
    main_options = (
        *("algorithm", "tasks_per_step", "group", "steps", "generated_tokens", "staleness"),
        *("stop_on_collapse", "tasks", "agent", "agent_url", "sim", "resume"),
    )

    algorithm: str = Field(default="grpo", json_schema_extra=about("Method"))
    """The credit rule: grpo, rloo, ppo, gigpo, mt-grpo, tree-grpo, mr, igpo, infopo, istar, itpo, opsd, sweet-pg, rft,
    or that of an installed package (docs/credit.md)."""
    tasks_per_step: int = Field(default=16, ge=1, json_schema_extra=about("Method"))
    """Tasks that are played for each step."""
    group: int = Field(default=8, ge=1, json_schema_extra=about("Method"))
    """Dialogues for each task of a step."""
    steps: int | None = Field(default=None, ge=1, json_schema_extra=about("Method"))
    """Steps, each of which plays, scores, learns and gives the new weights to the sampler; default: 100, without a
    limit of tokens or seconds."""
    generated_tokens: int | None = Field(default=None, ge=1, json_schema_extra=about("Method"))
    """End after the step in which the agent has written so many tokens, validation excluded."""
    seconds: float | None = Field(default=None, gt=0, json_schema_extra=about("Method"))
    """End after the step in which the training has taken so many seconds, those before a resumption included."""
    staleness: int = Field(default=0, ge=0, json_schema_extra=about("Method"))
    """Dialogues of the next K steps may be under way while a step is learned; the rule corrects their probabilities. 0:
    every dialogue is played by the newest weights."""
    stop_on_collapse: bool = Field(default=False, json_schema_extra=about("Method"))
    """End when rewards, leaks, entropies or limits show a collapse (docs/online.md), and keep the best actor."""
    validate_every: int = Field(default=0, ge=0, json_schema_extra=about("Method"))
    """Play validation tasks after every N steps and keep the actor that solves most of them, or whose mean reward is
    highest where no task counts as solved (html); 0 never does."""
    keep: Literal["best", "last"] = Field(default="best", json_schema_extra=about("Method"))
    """With validation, the weights that are the actor: those that did best on validation tasks, or the last."""
    validation_tasks: int = Field(default=100, ge=1, json_schema_extra=about("Method"))
    """Validation tasks to play, at most."""
    deterministic: bool = Field(default=False, json_schema_extra=about("Method"))
    """Sample one reply at a time and without the cache of prefixes, so that the same command ends with bitwise the same
    weights on the same machine. Much slower."""

    @property
    def most_steps(self) -> int | None:
        """The number of steps after which the training ends in any case; None if only a budget ends it."""
        unlimited = self.generated_tokens is None and self.seconds is None
        return STEPS if self.steps is None and unlimited else self.steps

    def rollout(self, *, validation: bool = False) -> RolloutConfig:
        """Return the options by which the dialogues on training or validation tasks are played.

        Tokens are sampled from the model's own distribution, temperature 1 without top-p: the recorded probabilities
        are of this distribution.
        """
        if validation:
            return as_rollout(self, split=VALIDATION, num_tasks=self.validation_tasks)
        return as_rollout(self, split=TRAIN)


STEPS = 100
"""Steps of a training without any limit."""

SAVE_EVERY = 5
"""Steps between checkpoints by default."""
