"""The options of `sweet rollout`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from sweet.judges.options import JUDGES_OF_OPTION, RUN_CRITICS, JudgeName, ReplyJudgeConfig
from sweet.stages.base import OPERATIONAL, PlannedConfig, StageConfig, about
from sweet.stages.options import (
    CriticConfig,
    DeadlineConfig,
    DialogueConfig,
    HarnessConfig,
    LocalModelsConfig,
    OpenDialogueConfig,
    ProtocolConfig,
    RayConfig,
)
from sweet.stages.prices import PricedConfig

CHOOSERS_OF_OPTION = {**JUDGES_OF_OPTION, "critic": RUN_CRITICS}
"""The options that only some judges of --best-of accept, with those judges."""


class SampledConfig(ProtocolConfig, OpenDialogueConfig):
    """What the commands share whose dialogues are sampled on one split."""

    split: str = Field(default="train", json_schema_extra=about("Data"))
    """Split to play: train, validation or test. A file has splits if its rows name one ("split") or with --holdout;
    otherwise all of its tasks are played, as this split."""
    temperature: float = Field(default=1.0, ge=0, json_schema_extra=about("Agent"))
    """Sampling temperature of the agent; 0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1, json_schema_extra=about("Agent"))
    """Nucleus sampling (top-p) of the agent."""


class PlayedConfig(SampledConfig, DialogueConfig):
    """What the commands share that play dialogues for a result of their own."""

    draw_tasks: bool = Field(default=False, json_schema_extra=about("Data"))
    """Play N random tasks, drawn by the seed, instead of the first N."""
    samples: int = Field(default=1, ge=1, json_schema_extra=about("Data"))
    """Dialogues for each task."""


class RolloutConfig(
    PlannedConfig,
    PricedConfig,
    RayConfig,
    DeadlineConfig,
    LocalModelsConfig,
    HarnessConfig,
    CriticConfig,
    ReplyJudgeConfig,
    PlayedConfig,
):
    main_options = (
        *("task", "tasks", "split", "agent", "agent_url", "sim"),
        *("sim_url", "persona", "num_tasks", "samples", "concurrency", "resume"),
    )

    spread: Literal["tasks", "samples"] = Field(default="tasks", json_schema_extra=about("Simulated human"))
    """How dialogues are spread over several humans: tasks, all dialogues of a task with one human, as preferences need;
    samples, the dialogues of a task with one human after the other, to compare the humans on the same tasks."""
    token_limit: int | None = Field(default=None, ge=1, json_schema_extra=about("Dialogue"))
    """Tokens of a dialogue, prompts and all candidates included, at which it ends with the answer so far; default: no
    limit."""
    best_of: int | None = Field(default=None, ge=1, json_schema_extra=about("Best of N"))
    """Sample N replies at each turn of the agent; the judge chooses the one that the dialogue goes on with. 1 is the
    ordinary rollout, without a judge."""
    judge: JudgeName | None = Field(default=None, json_schema_extra=about("Best of N"))
    """What chooses with --best-of: a critic of the run (default), a value function (value: a critic that was trained on
    outcomes), a language model that scores each reply (--judge-model), or a control. oracle: the credit that the tasks
    themselves know. random: chance. untrained: the model that critics start from. All but random and critics of the
    variant no-info see the training-time information."""
    new: bool = Field(default=False, json_schema_extra=about("Failures, resuming, checks", OPERATIONAL))
    """Start new rollouts even if unfinished ones with other settings exist."""

    @property
    def chooser(self) -> JudgeName:
        """The judge that chooses with --best-of."""
        return self.judge or "critic"

    @model_validator(mode="before")
    @classmethod
    def _one_candidate_is_ordinary(cls, settings: Any) -> Any:
        """Leave out the options of the judge where the best of one is chosen, so that the ordinary rollout is known."""
        if not isinstance(settings, Mapping) or settings.get("best_of") not in (1, "1"):
            return settings
        choosing = {"best_of", "judge", "judge_tokens", *CHOOSERS_OF_OPTION}
        return {name: value for name, value in settings.items() if name not in choosing}


def as_rollout(config: StageConfig, **decided: Any) -> RolloutConfig:
    """Return the configuration of a rollout with the settings that another command shares with it, and those that it
    decides."""
    shared = type(config).model_fields.keys() & RolloutConfig.model_fields.keys() - {"verify", "resume"}
    return RolloutConfig.model_validate({name: getattr(config, name) for name in shared} | decided)
