"""The paths of downloaded datasets."""

from __future__ import annotations

from pathlib import Path

from sweet.paths import data_folder

COLBENCH_SPLITS = ("train", "test")
"""The splits of ColBench's backend tasks."""


def websight_file(split: str) -> Path:
    """Return the file of a split of ColBench's frontend tasks, as `sweet data websight` writes it."""
    return data_folder() / "websight" / f"{split}.jsonl"


def colbench_file(split: str) -> Path:
    """Return the file of a split of ColBench's backend tasks, as `sweet data colbench` writes it."""
    return data_folder() / "colbench" / f"{split}.jsonl"
