"""What a model is, by the content of its files, so that what was computed with it can be found again.

Names say little: a directory may be written anew under the same name, and the same model may lie in two places.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from sweet.hf import cached_file
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import model_path
from sweet.runs.cache import remembered_sum

FLOPS_PER_PARAMETER = 2
"""Operations a parameter and token (arXiv 2001.08361, section 2.1)."""

WEIGHTS = (".safetensors", ".bin")
CONFIGS = ("config.json", "adapter_config.json")


def weights_digest(name: str) -> str | None:
    """sha256 of a model's weights and configuration, an adapter's with its base; None where they cannot be found.

    Args:
        name: as `sweet.llm.pretrained.load_model` takes it. A hub id is looked up in the local cache.
    """
    adapter = find_adapter(name)
    folders = [_folder(adapter.base), adapter.path] if adapter else [_folder(name)]
    whole = hashlib.sha256()
    for folder in folders:
        if folder is None:
            return None
        try:
            files = sorted(f for f in folder.iterdir() if f.is_file() and (f.suffix in WEIGHTS or f.name in CONFIGS))
            for file in files:
                whole.update(f"{remembered_sum(file)}  {file.name}\n".encode("utf-8", "surrogateescape"))
        except OSError:
            return None
        if not any(file.suffix in WEIGHTS for file in files):
            return None
        whole.update(b"\n")
    return whole.hexdigest()


def parameter_count(name: str) -> int | None:
    """Parameters of a model, an adapter's base, as the heads of its files tell; None where it is not on this machine,
    or in another format."""
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
