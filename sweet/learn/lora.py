"""LoRA with peft: the model is frozen, and small matrices next to its linear layers are trained.

A layer W then computes W x + (alpha / rank) B A x, where A has `rank` rows and B `rank` columns (arXiv 2106.09685).
peft inserts its layers into the model in place, so code written for a model, including prefix trees, works unchanged. B
is initialised to zero, and with the adapter disabled (`base_alone`) the model equals the one it started from, so no
second model is needed as the reference.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from sweet.errors import UsageError
from sweet.hints import option
from sweet.installation import install_command
from sweet.learn.logprobs import Scorer, SpanScores
from sweet.learn.sequences import TokenSequence
from sweet.llm.adapter import find_adapter
from sweet.llm.pretrained import absolute_name

ALL_LINEAR = "all-linear"
"""peft's name for all linear layers except the output layer."""


@dataclass(frozen=True)
class LoraSettings:
    """Settings of an adapter.

    Attributes:
        rank, alpha: rank and weight of its matrices.
        targets: names of the layers to adapt; empty for all linear layers.
        seed: of the initialisation of A.
    """

    rank: int
    alpha: int
    targets: tuple[str, ...] = ()
    seed: int = 0


def check_peft() -> None:
    """Raise UsageError if peft is not installed."""
    if find_spec("peft") is None:
        raise UsageError("peft is not installed.", where="--lora", fix=install_command("gpu"))


def add_lora(model: Any, settings: LoraSettings) -> Any:
    """Add an adapter to `model`, freeze all other weights, and return peft's wrapper of the model.

    The adapter changes nothing before it is trained. Its weights are fp32 and depend only on the seed. There is no
    dropout: policy and reference must differ in their weights alone. If no layers are named, only the language model of
    a vision-language model is adapted.

    Raises:
        UsageError: there is no such layer, or it is an embedding or output layer.
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
        warnings.simplefilter("ignore")  # about tied layers, which are refused below, and about its own imports
        torch.manual_seed(settings.seed)
        try:
            wrapped: Any = get_peft_model(model, config)
        except ValueError as error:
            raise UsageError(
                f"No LoRA for this model: {str(error).partition(chr(10))[0]}",
                where=option("lora_target", ", ".join(settings.targets) or ALL_LINEAR),
                fix="--lora-target with names of the model's linear layers, as q_proj",
            ) from error
    for layer, what in ((model.get_input_embeddings(), "embedding"), (model.get_output_embeddings(), "output layer")):
        if hasattr(layer, "lora_A"):
            raise UsageError(
                f"The {what} cannot be adapted with LoRA: models tie embedding and output layer.",
                where=option("lora_target", ", ".join(settings.targets)),
                fix="leave it out",
            )
    return wrapped.eval()


def _image_tower(model: Any) -> str | None:
    """A pattern of the modules outside the language model of a vision-language model; None for other models."""
    if getattr(model.config, "vision_config", None) is None:
        return None
    language = next(name for name, module in model.named_modules() if module is model.get_decoder())
    return rf"(?!{re.escape(language)}\.).*"


@contextmanager
def base_alone(model: Any) -> Iterator[None]:
    """Disable the adapter in this context, so that `model` computes as the model it started from. No effect without
    one."""
    layers = [module for module in model.modules() if hasattr(module, "lora_A")]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


class BaseScorer(Scorer):
    """Computes log-probabilities by the model beneath an adapter, which is not loaded a second time."""

    def __call__(
        self, sequences: Sequence[TokenSequence], other_ids: torch.Tensor | None = None, top: int = 0
    ) -> SpanScores:
        with base_alone(self.model):
            return super().__call__(sequences, other_ids, top)


def save_adapter(wrapped: Any, base: str, folder: Path) -> None:
    """Write the adapter in peft's format, with its base model.

    If that is an adapter itself, which was merged into the model before the training, both are written as one adapter
    of the model beneath: the sum of two products of matrices is the product of the matrices put together.
    """
    name, base_adapter = "default", find_adapter(base)
    if base_adapter is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are several adapters
            wrapped.load_adapter(str(base_adapter.path), "below", torch_device=str(wrapped.device))
            name = "together"
            wrapped.add_weighted_adapter(["below", "default"], [1.0, 1.0], name, combination_type="cat")
    wrapped.peft_config[name].base_model_name_or_path = absolute_name(base_adapter.base if base_adapter else base)
    # The embeddings are not trained; peft would otherwise ask the hub for the base to detect this.
    wrapped.save_pretrained(str(folder), selected_adapters=[name], save_embedding_layers=False)
    if base_adapter is not None:
        for path in (folder / name).iterdir():
            path.replace(folder / path.name)
        (folder / name).rmdir()


def merged(
    model: Any, gathered: Callable[[list[Any]], AbstractContextManager[object]] = lambda _: nullcontext()
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights of a model with its adapter merged in, by the names that the model has without the adapter.

    Without an adapter they are the model's own tensors and not copies. A regression head is not among them.

    Args:
        gathered: makes parameters complete within a context, in which the weights made of them are yielded.
    """
    adapted = {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
    for name, parameter in model.named_parameters():
        owner = next((path for path in adapted if name.startswith(f"{path}.")), None)
        if owner is None:
            with gathered([parameter]):
                yield name, parameter.detach()
        elif name == f"{owner}.base_layer.weight":
            with gathered(list(adapted[owner].parameters())):
                delta = adapted[owner].get_delta_weight("default").detach()
                yield f"{owner}.weight", parameter.detach() + delta.to(parameter.dtype)
        elif name.startswith(f"{owner}.base_layer."):
            with gathered([parameter]):
                yield name.replace(".base_layer.", "."), parameter.detach()
