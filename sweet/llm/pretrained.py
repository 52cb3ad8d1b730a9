"""Locates and loads models and tokenizers in Hugging Face layout.

A name is `micro` or `micro-parts` (the checkpoints packaged with sweet), an existing directory, which may be that of a
LoRA adapter (see `sweet.llm.adapter`), or a hub id (see `sweet.hf`). Any failure to load is reported as a UsageError
with the library's message: a model that cannot be loaded is an invalid argument.
"""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from sweet import collector
from sweet.device import Device, free_memory
from sweet.errors import UsageError
from sweet.hf import cached_file, check_complete, loading_errors, locate_model, resolve_device
from sweet.installation import install_command, installed_version
from sweet.llm.adapter import Adapter, find_adapter
from sweet.llm.limits import check_tokenizer, limit_parser, limit_template
from sweet.llm.spreading import place
from sweet.model_files import weights_in
from sweet.render.screenshot_images import require_pillow
from sweet.tasks.packaged import PACKAGED
from sweet.units import format_bytes

if TYPE_CHECKING:
    import torch

_COMPLETE = "name a complete causal language model in Hugging Face layout"
_WITH_TOKENIZER = (
    "where tokenizer.json is missing, copy it and tokenizer_config.json from the model it was trained from"
)
_KNOWN = (
    "micro, a directory in Hugging Face layout (config.json, *.safetensors, tokenizer.json), or a hub id that this "
    "machine can download"
)

TINY_PARAMETERS = 4_000_000
"""Up to this size a model is computed with one thread. Beside other work on two cores, two threads took 3.5 times as
long as one for a step of a model of 1.9 million parameters, and twice as long for one of 7 million."""

SOFT_CAPS = "5.21"
"""The first version of transformers that computes the soft cap of attention by default (Gemma 2, VaultGemma)."""

_SMALL = 1 << 24
"""Parameters that a model may have beyond its weights, which are then said to be incomplete."""

_largest = 0
"""The parameters of the largest model that this process computes with on the CPU."""


def model_path(name: str) -> str:
    """The location of `name`: that of a packaged checkpoint (`PACKAGED`), an existing directory as is, or a hub id."""
    return str(PACKAGED.get(name, name))


def absolute_name(name: str) -> str:
    """A model's name that is valid in any working directory: an absolute path, or a hub id as is."""
    local = Path(name).expanduser()
    return str(local.absolute()) if local.is_dir() else name


def config_path(name: str) -> str:
    """The location of the model's config.json; for an adapter, that of its base."""
    adapter = find_adapter(name)
    return model_path(adapter.base if adapter else name)


def load_tokenizer(name: str) -> Any:
    """Load the tokenizer of a chat model.

    Raises:
        UsageError: there is no such model, its tokenizer cannot be read, or it has no chat template.
    """
    with collector.paused():
        from transformers import AutoTokenizer

    auto_class: Any = AutoTokenizer
    adapter = find_adapter(name)
    path = str(adapter.path) if adapter and adapter.own_tokenizer else _locate(adapter.base if adapter else name)
    if (folder := model_folder(path)) is not None:
        check_tokenizer(folder)
    with _loading_errors(name, _WITH_TOKENIZER):
        tokenizer = auto_class.from_pretrained(path, trust_remote_code=False)
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            f"The model {name} has no chat template, so it cannot be prompted with a dialogue.",
            where=f"{path}: neither tokenizer_config.json (chat_template) nor chat_template.jinja holds one",
            fix="use the instruction-tuned model of the family, or copy its chat_template.jinja into this directory",
        )
    templates = tokenizer.chat_template
    for template in templates.values() if isinstance(templates, dict) else [templates]:
        limit_template(template, path)
    limit_parser(tokenizer, path)
    return tokenizer


def load_model(
    name: str,
    device: Device = "auto",
    dtype: str = "auto",
    *,
    tokenizer: Any = None,
    spreads: bool = False,
    merges: bool = True,
) -> Any:
    """Load a causal language model in evaluation mode.

    Args:
        device: `auto` is cuda if available.
        dtype: name of a torch type; `auto` is float32 on a CPU and bfloat16 on a GPU.
        tokenizer: if given, the model must have an embedding for every one of its tokens.
        spreads: whether its layers are divided among the GPUs if one is too small (`sweet.llm.spreading`).
        merges: whether a LoRA adapter is merged into its base; if not, its matrices stay beside the layers, in fp32.

    Raises:
        UsageError: there is no such model or device, the directory does not contain a complete model, or the model does
            not fit the memory.
    """
    import torch
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    adapter = find_adapter(name)
    path = _locate(adapter.base if adapter else name)
    target = resolve_device(device)
    usual = "bfloat16" if target.type == "cuda" else "float32"
    torch_dtype = getattr(torch, usual if dtype == "auto" else dtype)
    with _loading_errors(name):
        config = _config(path)
        auto_class = _model_class(config)
        # A rank of DeepSpeed that loads its part of the weights has no model of shapes alone, and needs less memory.
        if name not in PACKAGED and not is_deepspeed_zero3_enabled():  # type: ignore[no-untyped-call]
            _check_memory(config, path, torch_dtype)
        model, report = auto_class.from_pretrained(
            path, dtype=torch_dtype, trust_remote_code=False, output_loading_info=True
        )
    check_complete(report, name, path)
    if adapter is not None:
        _add_adapter(model, adapter, name, merges=merges)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, name)
    if target.type == "cpu":
        _choose_threads(model.num_parameters())
    try:
        return place(model.eval(), name, target) if spreads else model.eval().to(target)
    except torch.OutOfMemoryError as error:
        raise UsageError(f"The model {name} does not fit the GPU's memory.", where=path, fix="--device cpu") from error


def _check_memory(config: Any, path: str, dtype: torch.dtype) -> None:
    """Compare the model that a configuration describes with its weights, and with the free memory.

    Raises:
        UsageError: it is much larger than the weights, or does not fit the memory.
    """
    import torch

    where = Path(path) / "config.json"
    with torch.device("meta"):
        described = _model_class(config).from_config(config)
    numbers = sum(parameter.numel() for parameter in described.parameters())
    most, _ = (0, 0) if (folder := model_folder(path)) is None else weights_in(folder)
    if most and numbers > 2 * most + _SMALL:
        what = f"The configuration describes {numbers:,} parameters, and the weights have {most:,} at most."
        raise UsageError(what, where=where, fix=_COMPLETE)
    needed = numbers * dtype.itemsize + sum(buffer.numel() * buffer.element_size() for buffer in described.buffers())
    if needed > (free := free_memory() << 20):
        what = f"The model needs {format_bytes(needed)} of memory, and {format_bytes(free)} are free."
        raise UsageError(what, where=where, fix="use a smaller model, a machine with more memory, or a server")


def _choose_threads(parameters: int) -> None:
    """Compute with one thread unless this process has loaded a model that is not tiny: the threads of a tiny one wait
    for each other longer than they compute, beside other work several times as long. They also add in an order of their
    own, so without them a result is the same each time. `OMP_NUM_THREADS` decides where it is set."""
    import torch

    global _largest
    usual, _largest = _usual_threads(), max(_largest, parameters)
    if "OMP_NUM_THREADS" not in os.environ:  # each time: it counts for the thread that calls it, and for later ones
        torch.set_num_threads(usual if _largest > TINY_PARAMETERS else 1)


@cache
def _usual_threads() -> int:
    import torch

    return torch.get_num_threads()


def meta_model(name: str, *, tokenizer: Any = None) -> Any:
    """The model on torch's meta device: configuration and shapes, no weights. Arguments and errors as for
    `load_model`."""
    import torch

    path = _base_path(name)
    with _loading_errors(name), torch.device("meta"):
        config = _config(path)
        model = _model_class(config).from_config(config)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer, name)
    return model


def stored_type(name: str) -> torch.dtype | None:
    """The type that a model's weights are stored in; None if its configuration does not say."""
    torch_dtype: torch.dtype | None = _config(config_path(name)).dtype
    return torch_dtype


def load_config(name: str) -> Any:
    """The model's configuration; for an adapter, that of its base.

    Raises:
        UsageError: it cannot be read.
    """
    path = _base_path(name)
    with _loading_errors(name):
        return _config(path)


def is_vision_model(name: str) -> bool:
    """Whether it is a vision-language model according to its configuration. Raises the errors of `load_config`."""
    return getattr(load_config(name), "vision_config", None) is not None


def load_image_processor(name: str) -> Any:
    """The image processor of a vision-language model, in the variant for Pillow, which does not need torchvision.

    Raises:
        UsageError: Pillow is not installed, there is no such model, or it has no image processor.
    """
    from transformers import AutoImageProcessor

    auto_class: Any = AutoImageProcessor
    require_pillow()
    folder = Path(name).expanduser()
    path = str(folder) if (folder / "preprocessor_config.json").is_file() else _base_path(name)
    with _loading_errors(name):
        return auto_class.from_pretrained(path, backend="pil", trust_remote_code=False)


def _base_path(name: str) -> str:
    adapter = find_adapter(name)
    return _locate(adapter.base if adapter else name)


def _config(path: str) -> Any:
    from transformers import AutoConfig

    auto_class: Any = AutoConfig
    return auto_class.from_pretrained(path, trust_remote_code=False)


def _model_class(config: Any) -> Any:
    """The library's class for causal models, or for vision-language models if the model has no other.

    Raises:
        UsageError: the installed version of the library computes the family wrongly.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    if capped and Version(version := installed_version("transformers") or SOFT_CAPS) < Version(SOFT_CAPS):
        what = f"transformers {version} computes {config.model_type} without the soft cap of its attention."
        fix = f"pip install 'transformers>={SOFT_CAPS}', or the address of a server that plays the model"
        raise UsageError(what, where="transformers", fix=fix)
    causal: Any = AutoModelForCausalLM
    vision: Any = AutoModelForImageTextToText
    vision_only = type(config) in vision._model_mapping and type(config) not in causal._model_mapping
    return vision if vision_only else causal


def _add_adapter(model: Any, adapter: Adapter, name: str, *, merges: bool) -> None:
    try:
        from peft import PeftModel
    except ImportError as error:
        raise UsageError(
            f"{name} is a LoRA adapter, which cannot be loaded without peft.",
            where=adapter.path,
            fix=install_command("gpu"),
        ) from error
    with _loading_errors(name), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # raised by peft about transformers
        # peft initialises missing adapter weights and only warns.
        warnings.filterwarnings("error", message="Found missing adapter keys")
        # peft would load the adapter to a GPU wherever there is one.
        with_adapter = PeftModel.from_pretrained(
            model, str(adapter.path), torch_device=model.device.type, low_cpu_mem_usage=True
        )
        if merges:
            with_adapter.merge_and_unload().requires_grad_(True)  # frozen by the adapter; trainings start from this


def check_vocabulary(model: Any, tokenizer: Any, name: str) -> None:
    """Check that the model has an embedding for each token of the tokenizer.

    Raises:
        UsageError: the tokenizer has more tokens.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise UsageError(
            f"The model {name} knows {rows} tokens and its tokenizer has {len(tokenizer)}: they do not match.",
            where=model_path(name),
            fix="put the tokenizer that the model was trained with into its directory",
        )


def _locate(name: str) -> str:
    """The directory or hub id to load from, after checking that it exists."""
    path = model_path(name)
    return locate_model(name, path, where=path, fix=_KNOWN, known=PACKAGED)


def _loading_errors(name: str, fix: str = _COMPLETE) -> AbstractContextManager[None]:
    return loading_errors(name, where=model_path(name), fix=fix)


def context_length(config: Any) -> int | None:
    """The number of positions that a model of this configuration supports; None if that does not say."""
    length = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(length) if length else None


def is_here(name: str) -> bool:
    """Return whether a model, for an adapter its base, is on this machine."""
    return model_folder(config_path(name)) is not None


def model_folder(name: str) -> Path | None:
    """Return the folder of a model on this machine, in the cache where it was downloaded; None if it is not here."""
    path = Path(model_path(name)).expanduser()
    if path.is_dir():
        return path
    config = cached_file(name, "config.json")
    return None if config is None else config.parent
