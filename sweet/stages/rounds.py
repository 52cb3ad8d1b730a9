"""What `sweet train`, and the commands that `sweet status` suggests instead of it, agree on about rounds."""

from __future__ import annotations

RECIPE = "recipe.toml"
"""The settings of `sweet train`, in its run."""

ROUND_SEEDS = 1000
"""Difference between the seeds of two rounds, so large that runs with consecutive seeds share none."""
