"""`sweet data micro-agent`: build the packaged agent again from scratch (see sweet.tasks.micro.build)."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from sweet.datasets.metrics import MicroAgentMetrics
from sweet.errors import UsageError
from sweet.stages.base import Reporter, StageConfig, StageResult
from sweet.tasks.micro.build import AgentRecipe, build_agent


class MicroAgentConfig(StageConfig, AgentRecipe):
    """The options are the fields of the recipe."""


def run_data_micro_agent(folder: Path, config: MicroAgentConfig, reporter: Reporter) -> StageResult[MicroAgentMetrics]:
    """Build the agent into `folder`, which must be empty or missing. The result's `run` is the folder.

    Raises:
        UsageError: the folder is not empty, or the sizes are inconsistent.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("The folder already exists and is not empty.", where=folder, fix="name a new folder")
    if config.width % config.heads:
        raise UsageError(
            f"A width of {config.width} is not divisible by {config.heads} heads.",
            where="--heads, --width",
            fix="--heads 4",
        )
    started = time.monotonic()
    result = build_agent(folder, config=config, say=reporter.say)
    metrics = MicroAgentMetrics(**asdict(result), seconds=round(time.monotonic() - started, 1))
    return StageResult("data micro-agent", folder, metrics)
