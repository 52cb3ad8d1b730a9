"""Identifies a model by the content of its files, so that results computed with it can be found again.

Names are not sufficient: a directory may be overwritten, and the same model may be in two places.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from sweet.hf import cached_file
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import model_path
from sweet.runs.cache import cached_sha256

FLOPS_PER_PARAMETER = 2
"""Floating point operations per parameter and token of a forward pass (arXiv 2001.08361, section 2.1)."""

WEIGHTS = (".safetensors", ".bin")
CONFIGS = ("config.json", "adapter_config.json")


def weights_digest(name: str) -> str | None:
    """The sha256 of a model's weights and configuration, with its base for an adapter; None if they are not found.

    Args:
        name: as for `sweet.llm.pretrained.load_model`. A hub id is looked up in the local cache.
    """
    adapter = find_adapter(name)
    folders = [_folder(adapter.base), adapter.path] if adapter else [_folder(name)]
    digest = hashlib.sha256()
    for folder in folders:
        if folder is None:
            return None
        try:
            files = sorted(f for f in folder.iterdir() if f.is_file() and (f.suffix in WEIGHTS or f.name in CONFIGS))
            for file in files:
                digest.update(f"{cached_sha256(file)}  {file.name}\n".encode("utf-8", "surrogateescape"))
        except OSError:
            return None
        if not any(file.suffix in WEIGHTS for file in files):
            return None
        digest.update(b"\n")
    return digest.hexdigest()


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
