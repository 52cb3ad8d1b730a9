"""The options of `sweet gateway`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from sweet.rollouts.config import RolloutConfig, SampledConfig, as_rollout
from sweet.stages.base import PlannedConfig, about
from sweet.stages.options import ListenConfig, LocalModelsConfig


class GatewayConfig(PlannedConfig, LocalModelsConfig, ListenConfig, SampledConfig):
    main_options = (
        *("model", "agent_url", "host", "port", "task", "tasks"),
        *("split", "sim", "sim_url", "max_turns", "max_tokens", "resume"),
    )

    model: str = Field(default="micro", json_schema_extra=about("Agent"))
    """The model that programs ask, as --agent of sweet rollout names it: micro, an actor of the run by its id, a
    directory or a hub id."""
    concurrency: ClassVar[int] = 128
    """Requests to a server at once."""

    def rollout(self) -> RolloutConfig:
        """Return the configuration of a rollout with the same settings."""
        return as_rollout(self, agent=self.model)
