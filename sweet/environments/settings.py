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

from sweet.errors import InputError, first_problem
from sweet.regular import read_regular
from sweet.rollouts.config import RolloutConfig
from sweet.scoring.config import EvalConfig

SETTINGS, TASKS, PROMPTS, PERSONAS = "environment.json", "tasks.jsonl", "prompts", "personas.toml"
"""The files of an environment's folder."""
OF_HUMAN = ("sim", "sim_url", "human", "human_tries", "sim_max_tokens", "persona")
OF_ROLLOUT = ("max_turns", "protocol", *OF_HUMAN, "window", "pictures")
"""The settings that are those of a rollout."""
OF_EVAL = ("scorer", "tolerance", "similarity", "sandbox", "workers")
"""The settings that are those of an evaluation."""

_LARGEST = 1 << 20
"""Bytes of the settings at most."""


class EnvironmentSettings(BaseModel):
    """What decides the dialogues and the rewards of an environment.

    Attributes:
        format: of the file.
        rollout: the kind of the tasks, and how dialogues are played.
        eval: how they are scored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    rollout: RolloutConfig
    eval: EvalConfig = Field(default_factory=EvalConfig)

    @classmethod
    def read(cls, folder: Path, changes: Mapping[str, Any] | None = None) -> Self:
        """Return the settings of an environment's folder.

        Args:
            changes: settings that replace those of the file, by their names; None leaves one as it is.

        Raises:
            InputError: the file is missing or invalid, or a change is.
        """
        path = folder / SETTINGS
        try:
            recorded = json.loads(read_regular(path, _LARGEST))
            for name, value in (changes or {}).items():
                if value is not None:
                    recorded.setdefault("eval" if name in OF_EVAL else "rollout", {})[name] = value
            settings = cls.model_validate(recorded)
        except ValidationError as error:
            where, wrong = first_problem(error)
            what = f"The setting {where} of the environment is invalid: {wrong}."
            raise InputError(what, path=path, fix=f"correct {where}, or export the environment again") from error
        except (OSError, ValueError, AttributeError) as error:
            what = f"The settings of the environment cannot be read: {error}."
            raise InputError(what, path=path, fix="export the environment again") from error
        prompts, personas = folder / PROMPTS, folder / PERSONAS
        overrides = {
            "tasks": str(folder / TASKS),
            "agent": "external",
            "persona_file": personas if personas.is_file() else None,
            "prompts": prompts if prompts.is_dir() else None,
        }
        return settings.model_copy(update={"rollout": settings.rollout.model_copy(update=overrides)})

    def text(self) -> str:
        """Return the content of the file."""
        names: Any = {"format": True, "rollout": {"task", *OF_ROLLOUT}, "eval": {*OF_EVAL}}
        return self.model_dump_json(include=names, exclude_none=True, indent=2) + "\n"
