"""A command line of a stage: the settings of an earlier attempt, with changes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweet.runs.manifest import Artifact, Attempt
from sweet.runs.stages import stage_named
from sweet.runs.unfinished import valid_settings

MODEL, FILE = "MODEL", "FILE"
"""Placeholders of what only the user knows."""

PLACEHOLDERS = {MODEL: "the model to train: micro, a directory or a hub id", FILE: "a file of your own"}
"""What to put in their place."""

_OF_ONE_CALL = {
    *("resume", "new", "verify", "compare", "flips", "allow_different"),
    "allow_test",
}
"""Settings that are not repeated: they belong to the call that they were given to."""


def command_line(command: str, *words: str | Path) -> str:
    return shlex.join(["sweet", *command.split(), *map(str, words)])


def to_fill_in(commands: Sequence[str]) -> list[str]:
    """Return what is to be put in the place of each placeholder that the commands contain."""
    words = {word for command in commands for word in shlex.split(command)}
    return [f"{name} is {what}." for name, what in PLACEHOLDERS.items() if name in words]


@dataclass(frozen=True)
class StageCall:
    """A call of a stage.

    Attributes:
        settings: by field; None for a default.
    """

    stage: str
    run: Path
    settings: Mapping[str, Any]

    @classmethod
    def like(cls, attempt: Attempt | None, stage: str, run: Path) -> StageCall:
        """Return the call that repeats an attempt on other inputs; with the defaults without an attempt of the stage,
        or where its settings are not valid any more."""
        settings = valid_settings(attempt) if attempt is not None and attempt.stage == stage else None
        return cls(stage, run, {name: value for name, value in (settings or {}).items() if name not in _OF_ONE_CALL})

    def having(self, **changes: object) -> StageCall:
        return replace(self, settings={**self.settings, **changes})

    def reading(self, field: str, wanted: Artifact, default: Artifact | None) -> StageCall:
        """Return the call that reads an artifact, which is named if the stage would read another by default."""
        return self if default is not None and default.id == wanted.id else self.having(**{field: wanted.id})

    @property
    def line(self) -> str:
        """The command line, with the options that differ from the defaults in their order."""
        stage = stage_named(self.stage)
        assert stage is not None
        ordered = {name: self.settings[name] for name in stage.config.model_fields if name in self.settings}
        return command_line(self.stage, self.run, *stage.config.option_words(ordered))
