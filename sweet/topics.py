"""The topics: the headings under which `--help-all` and docs/commands.md list options.

A field of a configuration names its topic (`sweet.stages.base.about`). This module imports nothing else, because the
help is drawn from the index, without any configuration.
"""

from __future__ import annotations

from typing import Literal, get_args

Topic = Literal[
    "Data",
    "Dialogue",
    "Agent",
    "Simulated human",
    "Method",
    "Optimization",
    "Adapter (LoRA)",
    "Judge",
    "Scoring",
    "Pages",
    "Best of N",
    "Comparison",
    "Selection",
    "Output",
    "Study",
    "Servers",
    "Machine",
    "Several GPUs and machines",
    "Checkpoints and logs",
    "Failures, resuming, checks",
]

TOPICS: tuple[Topic, ...] = get_args(Topic)
"""All topics, in the order of the headings."""
