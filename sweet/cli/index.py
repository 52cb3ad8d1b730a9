"""The index: the declarations of all commands as JSON, in a file next to this module.

Help and completion must answer fast. A declaration is made from a configuration class, which imports pydantic and the
stage. So both read the index instead, which `python -m sweet.cli.generated` writes; a test checks that it is current. A
call uses the configuration class itself, so an outdated index only shows an outdated help.
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
    """Return the content of the index."""
    return json.dumps([asdict(item) for item in declarations], indent=1, ensure_ascii=False) + "\n"


@cache
def _content() -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in json.loads(PATH.read_text(encoding="utf-8"))}


def summaries() -> dict[str, str]:
    """Return each command's summary by its name."""
    return {name: item["summary"] for name, item in _content().items()}


def declaration(name: str) -> Declaration:
    """Return a command's declaration. Raises KeyError if it is not in the index."""
    return Declaration.from_json(_content()[name])
