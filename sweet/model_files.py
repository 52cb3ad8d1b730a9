"""Checks the files of a model before libraries read them: a model may come from a stranger.

Libraries make as many layers, labels or experts as config.json says, whatever the weights have, and read JSON of any
size and depth. Here the size, depth and numbers of these files are bounded, layers by the tensors that there are.
`sweet.llm.pretrained` compares the model with its weights and the memory; templates and tokenizers have
`sweet.llm.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from sweet.errors import UsageError

LARGEST = {"tokenizer.json": 256, "vocab.json": 64, ".json": 4, ".jinja": 1, ".txt": 64, ".model": 64}
LARGEST |= {f"{name}.index.json": 64 for name in ("model.safetensors", "pytorch_model.bin")}
"""MiB of files by their name or suffix."""
LARGEST_HEADER = 32 << 20
"""Bytes of the header of a file of weights. Those of the largest models have one or two MiB."""
DEEPEST = 32
MOST_LAYERS, MOST_LABELS = 512, 1 << 17
"""Layers, experts and the like of a model with few tensors; labels."""

_COUNTED, _MEASURED = ("layer", "depth", "block", "expert", "stage", "label"), ("size", "dim")
"""Words in the names of numbers of parts, and in others that have such words too."""
_PACKED = 8
"""Weights that an integer of quantised weights may hold."""


def check_model_files(folder: Path) -> None:
    """Check the configurations, the tokenizer's files and the weights' headers and index in a model's folder.

    Raises:
        UsageError: one is too large, damaged or nested too deeply, or has a number or a path that no model has.
    """
    tensors = weights_in(folder)[1]
    for file in sorted(folder.iterdir()):
        most = LARGEST.get(file.name, LARGEST.get(file.suffix))
        if most is None or not file.is_file():
            continue
        if (size := file.stat().st_size) > most << 20:
            raise _wrong(file, f"the file has {size:,} bytes; that of a model has at most {most} MiB.")
        if file.suffix != ".json" or file.name in ("tokenizer.json", "vocab.json"):
            continue
        try:
            content = from_json(file.read_bytes())
        except ValueError as error:
            raise _wrong(file, f"the file is not JSON: {error}.") from error
        shards = content.get("weight_map") if isinstance(content, dict) else None
        outside = [name for name in shards.values() if Path(str(name)).name != name] if isinstance(shards, dict) else []
        if outside:
            raise _wrong(file, f"the index names a file outside of the folder: {outside[0]!r}.")
        for name, number in () if shards or file.name.startswith("tokenizer") else _numbers(file, content):
            limit, why = 1 << 53, ""
            if any(word in name for word in _COUNTED) and not any(word in name for word in _MEASURED):
                limit = MOST_LABELS if "label" in name else max(MOST_LAYERS, tensors)
                why = f", and the weights have {tensors:,} tensors"
            if abs(number) > limit:
                raise _wrong(file, f"{name} is {str(number)[:40]}{why}: no model is like this.")


def _wrong(file: Path, what: str) -> UsageError:
    return UsageError(f"The model cannot be loaded: {what}", where=file, fix="use another model, or correct the file")


def _numbers(file: Path, value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers in a JSON value, each with its key."""
    if depth > DEEPEST:
        raise _wrong(file, f"the file is nested more than {DEEPEST} deep.")
    if isinstance(value, int):
        yield name, value
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else ((name, inner) for inner in value):
            yield from _numbers(file, inner, key, depth + 1)


def weights_in(folder: Path) -> tuple[int, int]:
    """Return how many numbers, and how many tensors, the files of weights in a folder have at most.

    Raises:
        UsageError: one is damaged, or has a header of more than `LARGEST_HEADER` bytes.
    """
    from safetensors import SafetensorError, safe_open

    pickled = [file.stat().st_size for file in folder.glob("*.bin")]  # a number has a byte at least
    numbers, tensors = sum(pickled), MOST_LAYERS * 8 * len(pickled)
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            if int.from_bytes(stream.read(8), "little") > LARGEST_HEADER:
                raise _wrong(file, f"the weights have a header of more than {LARGEST_HEADER >> 20} MiB.")
        try:
            with safe_open(file, framework="numpy") as weights:  # its header must describe all of its bytes
                for name in weights.keys():  # noqa: SIM118 it is no dict
                    piece = weights.get_slice(name)
                    numbers += math.prod(piece.get_shape()) * (_PACKED if piece.get_dtype()[0] in "IU" else 1)
                    tensors += 1
        except (SafetensorError, OSError) as error:
            raise _wrong(file, f"the weights are damaged: {error}.") from error
    return numbers, tensors
