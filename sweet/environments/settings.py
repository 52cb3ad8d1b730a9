"""The settings of an exported environment: `environment.json` in the folder of its package, beside `tasks.jsonl`.

They are those of a rollout and of an evaluation that decide what the agent reads and which reward it gets. Prompts and
personas that a run was given in files are in the folder too, as `prompts/*.txt` and `personas.toml`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweet.errors import InputError
from sweet.humans.base import TRIES
from sweet.regular import read_regular
from sweet.render.window import PictureRule, Window
from sweet.rollouts.config import RolloutConfig
from sweet.sandbox.program import TierChoice
from sweet.sandbox.values import RELATIVE_TOLERANCE
from sweet.stages.base import OneOrMore
from sweet.tasks.base import HumanSees, ProtocolName
from sweet.tasks.markers import MAX_TURNS

SETTINGS, TASKS, PROMPTS, PERSONAS = "environment.json", "tasks.jsonl", "prompts", "personas.toml"
"""The files of an environment's folder."""
OF_ROLLOUT = ("max_turns", "protocol", "sim", "sim_url", "human", "human_tries", "persona", "window", "pictures")
"""The settings that are those of a rollout."""

_LARGEST = 1 << 20
"""Bytes of the settings at most."""


class EnvironmentSettings(BaseModel):
    """What decides the dialogues and the rewards of an environment.

    Attributes:
        format: of the file.
        kind: of the tasks.
        sim, sim_url, human, human_tries, persona: of the simulated human, as in `RolloutConfig`.
        scorer, tolerance, similarity: of the rewards, as in `sweet.scoring.config.EvalConfig`.
        window, pictures: how pages are rendered.
        sandbox, workers: where answers are run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    kind: str
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    protocol: ProtocolName = "paper"
    sim: OneOrMore = "scripted"
    sim_url: list[str] = Field(default_factory=list)
    human: HumanSees = "code"
    human_tries: int = Field(default=TRIES, ge=1)
    persona: list[str] = Field(default_factory=list)
    scorer: Literal["strict", "upstream"] = "strict"
    tolerance: float = Field(default=RELATIVE_TOLERANCE, ge=0, lt=1)
    similarity: str | None = None
    window: Window | None = None
    pictures: PictureRule | None = None
    sandbox: TierChoice = "auto"
    workers: int | None = Field(default=None, ge=1)

    @classmethod
    def read(cls, folder: Path, changes: Mapping[str, Any] | None = None) -> Self:
        """Return the settings of an environment's folder.

        Args:
            changes: settings that replace those of the file; None leaves one as it is.

        Raises:
            InputError: the file is missing or invalid, or a change is.
        """
        path = folder / SETTINGS
        try:
            found = json.loads(read_regular(path, _LARGEST))
        except (OSError, ValueError) as error:
            what = f"The settings of the environment cannot be read: {error}."
            raise InputError(what, path=path, fix="export the environment again") from error
        given = {name: value for name, value in (changes or {}).items() if value is not None}
        try:
            return cls.model_validate({**found, **given} if isinstance(found, dict) else found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            what = f"The setting {where} of the environment is invalid: {first['msg']}."
            raise InputError(what, path=path, fix=f"correct {where}, or export the environment again") from error

    def rollout(self, folder: Path) -> RolloutConfig:
        """Return the settings as those of a rollout of the tasks in an environment's folder."""
        prompts, personas = folder / PROMPTS, folder / PERSONAS
        return RolloutConfig(
            task=self.kind,
            tasks=str(folder / TASKS),
            agent="external",
            persona_file=personas if personas.is_file() else None,
            prompts=prompts if prompts.is_dir() else None,
            **{name: getattr(self, name) for name in OF_ROLLOUT},
        )
