"""`sweet data micro-agent`: builds the packaged agent again, from nothing (see sweet.tasks.micro.build)."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from sweet.datasets.metrics import MicroAgentMetrics
from sweet.errors import UsageError
from sweet.stages.base import Reporter, StageConfig, StageResult
from sweet.tasks.micro.build import AgentRecipe, build_agent


class MicroAgentConfig(StageConfig, AgentRecipe):
    """The recipe's fields are the options."""


def run_data_micro_agent(folder: Path, config: MicroAgentConfig, reporter: Reporter) -> StageResult[MicroAgentMetrics]:
    """Build the agent into `folder`, which must be empty or not there. The result's `run` is the folder.

    Raises:
        UsageError: something is in the folder, or the sizes do not fit each other.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("The folder is there already and not empty.", where=folder, fix="name a new folder")
    if config.width % config.heads:
        raise UsageError(
            f"{config.heads} heads do not divide a width of {config.width}.", where="--heads, --width", fix="--heads 4"
        )
    began = time.monotonic()
    result = build_agent(folder, config=config, say=reporter.say)
    metrics = MicroAgentMetrics(**asdict(result), seconds=round(time.monotonic() - began, 1))
    return StageResult("data micro-agent", folder, metrics)
