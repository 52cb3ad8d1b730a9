"""Where datasets that were downloaded lie."""

from __future__ import annotations

from pathlib import Path

from sweet.paths import data_folder

COLBENCH_SPLITS = ("train", "test")
"""The splits of ColBench's backend tasks."""


def websight_file(split: str) -> Path:
    """The file of ColBench's frontend tasks of one split, as `sweet data websight` lays it down."""
    return data_folder() / "websight" / f"{split}.jsonl"


def colbench_file(split: str) -> Path:
    """The file of ColBench's backend tasks of one split, as `sweet data colbench` lays it down."""
    return data_folder() / "colbench" / f"{split}.jsonl"
