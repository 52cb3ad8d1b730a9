"""The environment that an attempt ran in, and the removal of secrets from what is recorded."""

from __future__ import annotations

import json
import platform
from functools import cache
from typing import Any

from pydantic_core import to_jsonable_python

from sweet.device import CORES, usable_cores
from sweet.installation import VERSION, installed_version
from sweet.plugins import plugins
from sweet.redaction import redacted_json
from sweet.runs.jsonl import plain

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "aiohttp",
    "pydantic",
    "accelerate",
    "datasets",
    "deepspeed",
    "openrlhf",
    "peft",
    "pillow",
    "playwright",
    "tinker",
    "vllm",
)
"""Packages whose versions are recorded, if they are installed. None of them is imported."""

NODES = "nodes"
"""Key of the nodes of a cluster, by their names."""


@cache
def _versions() -> dict[str, str]:
    return {name: version for name in PACKAGES if (version := installed_version(name)) is not None}


def environment(task: str) -> dict[str, Any]:
    """Return the versions of the program, of the package of the kind of task (empty if none is installed), of Python,
    the system and the packages that decide results, and the number of cores."""
    return {
        "sweet": VERSION,
        "kind": next((str(plugin) for plugin in plugins().get(task.partition(":")[0], ())), ""),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": dict(_versions()),
        CORES: usable_cores(),
    }


def recordable(value: Any) -> Any:
    """Return any value as JSON types, without keys and passwords (in addresses, headers and error texts)."""
    as_json = json.dumps(to_jsonable_python(value, fallback=str, inf_nan_mode="constants"))
    return redacted_json(plain(json.loads(as_json)))
