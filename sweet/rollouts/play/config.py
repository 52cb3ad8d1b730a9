"""The options of `sweet play`, its metrics, and the work that its plan counts."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from sweet.llm.scripted import SCRIPTED
from sweet.rollouts.config import PlayedConfig, RolloutConfig, as_rollout
from sweet.rollouts.play.typed import Role, name_fault
from sweet.stages.base import OPERATIONAL, PlannedConfig, about
from sweet.stages.options import LocalModelsConfig
from sweet.stages.record import Record


class PlayConfig(PlannedConfig, LocalModelsConfig, PlayedConfig):
    main_options = (
        *("as_", "name", "task", "tasks", "agent", "agent_url"),
        *("sim", "sim_url", "num_tasks", "serve_at", "resume"),
    )

    as_: Role = Field(default="human", json_schema_extra=about("Dialogue"))
    """Whom you play: human, who knows the reference and answers the agent, or agent, who asks and delivers the
    answer."""
    name: str = Field(default="person", json_schema_extra=about("Dialogue"))
    """Your name, which is recorded with your dialogues: letters, digits, spaces and . _ - +. Each name and role has
    dialogues of its own."""
    skipped: bool = Field(default=False, json_schema_extra=about("Selection", OPERATIONAL))
    """Play the dialogues that you skipped, too."""
    serve_at: str | None = Field(default=None, json_schema_extra=about("Output", OPERATIONAL))
    """HOST:PORT, or PORT of this machine: play in a browser instead of this terminal, at an address with a secret
    token. Whoever has it can play, and read the references. Needs the package textual-serve."""
    concurrency: ClassVar[int] = 1
    """Requests to a server at once: those of one dialogue."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if fault := name_fault(name):
            raise ValueError(fault)
        return name

    @model_validator(mode="after")
    def _check_sides(self) -> PlayConfig:
        human = ("sim", "sim_url", "persona", "persona_file", "human", "human_tries", "sim_max_tokens")
        for name in human if self.as_ == "human" else ("agent", "agent_url"):
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name} names the side that you play yourself (as {self.as_}).")
        return self

    def rollout(self) -> RolloutConfig:
        """Return the configuration of a rollout with the same settings. The person's side is `scripted` in it."""
        return as_rollout(self, **{"sim" if self.as_ == "human" else "agent": SCRIPTED})


class PlayMetrics(Record):
    """Of all dialogues of the artifact, those of earlier calls included."""

    episodes: int
    """finished dialogues"""
    played: int
    """of these, dialogues that were finished in this call"""
    skipped: int
    """dialogues that were skipped; --skipped offers them again"""
    missing: int
    """dialogues that are neither finished nor skipped"""
    under_way: str | None
    """the dialogue that was begun and not finished; null without one"""
    turns: int
    """turns of the agent"""
    outcomes: dict[str, int]
    """dialogues by how they ended"""
    seconds: float
    """duration of this call"""


class PlayWork(Record):
    """The work of `sweet play`."""

    tasks: int
    """tasks that are played"""
    dialogues: int
    """dialogues of all tasks"""
