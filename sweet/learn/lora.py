"""LoRA by peft: the model stays as it is, and small matrices beside its linear layers are trained.

A layer W then computes W x + (alpha / rank) B A x, with A of `rank` rows and B of `rank` columns (arXiv 2106.09685).
peft puts its layers into the model in place, so that everything that is written for a model, prefix trees included,
takes it as before. B is zero at first, and with the adapter off (`base_alone`) the model is the one it started from:
the reference needs no second model.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from sweet.errors import UsageError
from sweet.hints import Hint, option
from sweet.installation import install_command

ALL_LINEAR = "all-linear"
"""peft's word for every linear layer but the output layer."""


@dataclass(frozen=True)
class LoraSettings:
    """Rank and weight of the adapter's matrices, the layers they stand beside (none: all linear ones), seed of A."""

    rank: int
    alpha: int
    targets: tuple[str, ...] = ()
    seed: int = 0


def check_peft() -> None:
    """Raise UsageError where peft is not installed."""
    if find_spec("peft") is None:
        raise UsageError("peft is not installed.", where=option("lora"), fix=install_command("gpu"))


def add_lora(model: Any, settings: LoraSettings) -> Any:
    """Put an adapter that changes nothing yet into `model`, and freeze the rest; peft's wrapper around it.

    The adapter's weights are fp32, and the same wherever it is made from the same seed. There is no dropout: policy
    and reference must differ by the weights alone.

    Where no layers are named, a model that sees pictures is adapted in its language model alone.

    Raises:
        UsageError: there is no such layer to stand beside, or it is one that tokens go in or out by.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(settings.targets) or ALL_LINEAR,
        exclude_modules=None if settings.targets else _image_tower(model),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of tied layers, which are refused below, and of its own imports
        torch.manual_seed(settings.seed)
        try:
            wrapped: Any = get_peft_model(model, config)
        except ValueError as error:
            raise UsageError(
                f"No LoRA for this model: {str(error).partition(chr(10))[0]}",
                where=option("lora_target", ", ".join(settings.targets) or ALL_LINEAR),
                fix=Hint(option("lora_target"), " with names of the model's linear layers, as q_proj"),
            ) from error
    for layer, what in ((model.get_input_embeddings(), "embedding"), (model.get_output_embeddings(), "output layer")):
        if hasattr(layer, "lora_A"):
            raise UsageError(
                f"The {what} is no place for LoRA: models tie embedding and output layer.",
                where=option("lora_target", ", ".join(settings.targets)),
                fix="leave it out",
            )
    return wrapped.eval()


def _image_tower(model: Any) -> str | None:
    """Names of the modules outside the language model of one that sees pictures, as a pattern; None for another."""
    if getattr(model.config, "vision_config", None) is None:
        return None
    language = next(name for name, module in model.named_modules() if module is model.get_decoder())
    return rf"(?!{re.escape(language)}\.).*"


@contextmanager
def base_alone(model: Any) -> Iterator[None]:
    """While it is open, `model` computes without its adapter, as the model it started from. Nothing without one."""
    layers = [module for module in model.modules() if hasattr(module, "lora_A")]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def save_adapter(wrapped: Any, base: str, folder: Path) -> None:
    """Write the adapter as peft does; `base` is recorded as the model it belongs to."""
    wrapped.peft_config["default"].base_model_name_or_path = base
    # The embeddings are not trained; to find that out by itself peft would ask the hub for the base.
    wrapped.save_pretrained(str(folder), save_embedding_layers=False)
