"""Reads the text of a recipe."""

from __future__ import annotations

from pathlib import Path

from sweet.pipeline.recipe import Recipe, checked
from sweet.toml_file import parse_toml


def parse(text: str, source: str) -> Recipe:
    """Return the recipe of a TOML text; `source` is the file, for errors."""
    return checked(parse_toml(text, Path(source)), source)
