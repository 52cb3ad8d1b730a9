"""The index: what all commands declare, kept as JSON beside this module.

Help and completion answer while somebody waits. A declaration is made from a configuration class, and the class costs
the import of pydantic and of the stage; so both read what `python -m sweet.cli.generated` has kept of it. A test
compares the two. Only they read it: a call itself goes by the command's own class, so an index that is behind shows
an old help and does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from sweet.cli.declaration import Declaration

PATH = Path(__file__).with_name("index.json")


def render(declarations: Iterable[Declaration]) -> str:
    """The index's content."""
    return json.dumps([asdict(item) for item in declarations], indent=1, ensure_ascii=False) + "\n"


@cache
def _kept() -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in json.loads(PATH.read_text(encoding="utf-8"))}


def summaries() -> dict[str, str]:
    """Each command's summary by its name."""
    return {name: item["summary"] for name, item in _kept().items()}


def declaration(name: str) -> Declaration:
    """Raises KeyError where the index does not know the command."""
    return Declaration.from_json(_kept()[name])
