"""The size of a model, read from its files."""

from __future__ import annotations

import math
from pathlib import Path

from sweet.hf import cached_file
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import model_path

FLOPS_PER_PARAMETER = 2
"""Floating point operations per parameter and token of a forward pass (arXiv 2001.08361, section 2.1)."""


def parameter_count(name: str) -> int | None:
    """The number of parameters of a model (of an adapter's base), read from the headers of its safetensors files; None
    if it is not on this machine or has another format."""
    from safetensors import SafetensorError, safe_open

    adapter = find_adapter(name)
    folder = _folder(adapter.base if adapter else name)
    files = [] if folder is None else sorted(folder.glob("*.safetensors"))
    count = 0
    for file in files:
        try:
            with safe_open(file, framework="numpy") as weights:
                count += sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            return None
    return count or None


def _folder(name: str) -> Path | None:
    path = Path(model_path(name)).expanduser()
    if path.is_dir():
        return path
    config = cached_file(name, "config.json")
    return None if config is None else config.parent
