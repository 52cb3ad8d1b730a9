"""The command line that repeats an attempt, from its record in the manifest."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from sweet.runs.manifest import Attempt
from sweet.runs.stages import stage_named


def default_settings(stage: str) -> dict[str, Any] | None:
    """Return a stage's options and their defaults in recorded form; None if the stage makes no artifact."""
    known = stage_named(stage)
    return None if known is None else known.config.default_settings()


def command_of(attempt: Attempt, run: str | Path) -> str:
    """Return the command line that repeats an attempt from its beginning, with the options that differ from the
    defaults.

    Raises:
        ValueError: it is not an attempt of a stage of the pipeline.
    """
    stage = stage_named(attempt.stage)
    if stage is None:
        raise ValueError(f"{attempt.stage} is not a stage of the pipeline")
    settings = {**attempt.config, "resume": False}
    return shlex.join(["sweet", attempt.stage, str(run), *stage.config.option_words(settings)])
