"""The environment that an attempt ran in, and the removal of secrets from what is recorded."""

from __future__ import annotations

import json
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic_core import to_jsonable_python

from sweet.device import CORES, usable_cores
from sweet.installation import VERSION
from sweet.plugins import package_of
from sweet.runs.jsonl import plain

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "openai",
    "pydantic",
    "accelerate",
    "datasets",
    "deepspeed",
    "openrlhf",
    "peft",
    "pillow",
    "playwright",
    "vllm",
)
"""Packages whose versions are recorded, if they are installed. None of them is imported."""

NODES = "nodes"
"""Key of the nodes of a cluster, by their names."""

_SECRETS = (
    (re.compile(r"(://)[^/\s@]+@"), r"\1***@"),
    (
        re.compile(r"(?i)([?&](?:api[-_]?key|key|access[-_]?token|token|secret|password|sig(?:nature)?)=)[^&\s]+"),
        r"\1***",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}"), r"\1***"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), "sk-***"),
    (re.compile(r"\bhf_[A-Za-z0-9]{20,}"), "hf_***"),
)


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def environment(task: str) -> dict[str, Any]:
    """Return the versions of the program, of the package of the kind of task, of Python, the system and the packages
    that decide results, and the number of cores."""
    return {
        "sweet": VERSION,
        "kind": package_of(task),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": dict(_versions()),
        CORES: usable_cores(),
    }


def recordable(value: Any) -> Any:
    """Return any value as JSON types, without keys and passwords (in addresses, headers and error texts)."""
    return _redact(plain(json.loads(json.dumps(to_jsonable_python(value, fallback=str, inf_nan_mode="constants")))))


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, replacement in _SECRETS:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        return {_redact(key): _redact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact(item) for item in value]
    return value
