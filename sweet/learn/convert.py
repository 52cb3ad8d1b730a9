"""Writes a GGUF file, or a LoRA adapter with its base, as an ordinary model: a directory in Hugging Face layout.

    python -m sweet.learn.convert MODEL FOLDER

transformers reads the weights of a GGUF file, which llama.cpp has quantized, back into floating point. That takes about
a minute for a model of 135M parameters, so it is done once, and not by each stage. An adapter is merged into its base.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweet.errors import SweetError, UsageError
from sweet.hf import loading_errors
from sweet.learn.trainee import save_model, write_merged
from sweet.llm.adapter import find_adapter

_QUANTIZED = ("hf_quantizer", "is_quantized", "quantization_method")


def convert(name: str, folder: Path) -> None:
    """Write a model into a new folder.

    Args:
        name: a GGUF file, or the directory of an adapter.

    Raises:
        UsageError: it is neither or cannot be read, the folder exists, or a package is missing.
    """
    if folder.exists():
        raise UsageError("The folder exists.", where=folder, fix="another one")
    if name.endswith(".gguf"):
        _convert_gguf(Path(name), folder)
    elif find_adapter(name) is not None:
        write_merged(name, folder)
    else:
        raise UsageError(f"{name} is no GGUF file and no adapter.", where="MODEL", fix="name one of these")


def _convert_gguf(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if missing := [package for package in ("gguf", "accelerate") if find_spec(package) is None]:
        what = f"transformers reads GGUF files by packages that are not installed: {', '.join(missing)}."
        raise UsageError(what, where=file, fix=f"pip install {' '.join(missing)}")
    tokenizers: Any = AutoTokenizer
    models: Any = AutoModelForCausalLM
    place: dict[str, Any] = {"gguf_file": file.name, "trust_remote_code": False}
    with loading_errors(str(file), where=str(file), fix="name a whole GGUF file of a text model"):
        tokenizer = tokenizers.from_pretrained(file.parent, **place)
        model = models.from_pretrained(file.parent, dtype=torch.float32, **place)
    for owner, name in (*((model, name) for name in _QUANTIZED), (model.config, "quantization_config")):
        if name in vars(owner):  # otherwise it would be saved as a quantized model
            delattr(owner, name)
    model.config.architectures = [type(model).__name__]
    save_model(model, tokenizer, folder)


if __name__ == "__main__":
    try:
        convert(sys.argv[1], Path(sys.argv[2]))
    except IndexError:
        sys.exit("python -m sweet.learn.convert MODEL FOLDER")
    except SweetError as error:
        sys.exit(str(error))
