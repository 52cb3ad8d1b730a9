"""Write a GGUF file, or a LoRA adapter with its base, as an ordinary model: a directory in Hugging Face layout.

    python examples/convert_model.py MODEL FOLDER

transformers reads the weights of a GGUF file, which llama.cpp has quantized, back into floating point
(docs/small-models.md). An adapter is merged into its base.
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


def convert(name: str, folder: Path) -> None:
    """Write a GGUF file, or the adapter in a directory, into a new folder."""
    if folder.exists():
        raise UsageError("The folder exists.", where=folder, fix="another one")
    if name.endswith(".gguf"):
        convert_gguf(Path(name), folder)
    elif find_adapter(name) is not None:
        write_merged(name, folder)
    else:
        raise UsageError(f"{name} is no GGUF file and no adapter.", where="MODEL", fix="name one")


def convert_gguf(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (find_spec("gguf") and find_spec("accelerate")):
        what = "transformers reads GGUF files by two other packages."
        raise UsageError(what, where=file, fix="pip install gguf accelerate")
    tokenizers: Any = AutoTokenizer
    models: Any = AutoModelForCausalLM
    with loading_errors(str(file), where=str(file), fix="name a whole GGUF file of a text model"):
        tokenizer = tokenizers.from_pretrained(file.parent, gguf_file=file.name)
        model = models.from_pretrained(file.parent, dtype=torch.float32, gguf_file=file.name)
    for owner in (model, model.config):  # otherwise it would be saved as a quantized model
        for mark in {"hf_quantizer", "is_quantized", "quantization_method", "quantization_config"} & vars(owner).keys():
            delattr(owner, mark)
    model.config.architectures = [type(model).__name__]
    save_model(model, tokenizer, folder)


if __name__ == "__main__":
    try:
        convert(sys.argv[1], Path(sys.argv[2]))
    except IndexError:
        sys.exit("python examples/convert_model.py MODEL FOLDER")
    except SweetError as error:
        sys.exit(str(error))
