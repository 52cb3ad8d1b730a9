"""The model to train: loads it, prepares it for training, and writes the result.

This is the same for one device and for many ranks: both end with the trained weights by name, and what is written is
the initial model with these weights, in the type its own weights were stored in.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sweet.device import Device
from sweet.hf import save_plain, without_progress_bars
from sweet.learn.engine import copy_weights, parameter_count, trainable_weights
from sweet.learn.head import attach_head, detached_head, save_head
from sweet.learn.lora import LoraSettings, add_lora, save_adapter
from sweet.learn.recompute import RECOMPUTE_THRESHOLD, recompute_layers
from sweet.llm.adapter import CONFIG as ADAPTER_CONFIG
from sweet.llm.adapter import WEIGHTS, find_adapter
from sweet.llm.pretrained import absolute_name, load_model, load_tokenizer, meta_model, model_path, stored_type
from sweet.llm.template import reply_ends

LoraOutput = Literal["merged", "adapter"]

ADAPTER_THRESHOLD = 50_000_000
"""Number of parameters from which an adapter is written alone by default: merged, each takes the disk of a model."""


@dataclass(frozen=True)
class Start:
    """What a training starts from.

    Attributes:
        base: the model, as for `sweet.llm.pretrained`.
        lora: the adapter that is trained instead of the model.
        output: with an adapter, what is written: the model with the adapter merged in, or the adapter alone; None
            decides by the size of the model, and for a base to whose own adapter none can be added.
        recompute: gradient checkpointing; None decides by the size of the model.
        head: also train a regression head, completely even with an adapter.
        head_seed: of a head that is initialised with random numbers and has no bias; None for zeros and a bias.
    """

    base: str
    lora: LoraSettings | None = None
    output: LoraOutput | None = None
    recompute: bool | None = False
    head: bool = False
    head_seed: int | None = None


class Trainee:
    """A model to train.

    Attributes:
        model: the causal model, including the layers of an adapter.
        parameters, trained: number of parameters of the model, without adapter and head, and number of trained ones.
        recomputed: whether layers are recomputed in the backward pass.
        output: what is written of an adapter; None where none is trained.
    """

    def __init__(self, start: Start, model: Any) -> None:
        self.start, self.model = start, model
        self.parameters = parameter_count(model.parameters())
        self._adapted = add_lora(model, start.lora) if start.lora else None
        self.output = None if start.lora is None else start.output or self._usual_output()
        if start.head:  # after the adapter, which freezes all existing weights
            attach_head(model, bias=start.head_seed is None, seed=start.head_seed)
        self.trained = parameter_count(trainable_weights(model).values())
        self.recomputed = self.parameters >= RECOMPUTE_THRESHOLD if start.recompute is None else start.recompute
        if self.recomputed:
            recompute_layers(model)

    @classmethod
    def load(cls, start: Start, device: Device, *, tokenizer: Any = None) -> Trainee:
        """Load the model with weights in fp32, because small updates vanish in bf16. Raises the errors of
        `load_model`."""
        return cls(start, load_model(start.base, device, "float32", tokenizer=tokenizer))

    @classmethod
    def on_meta(cls, start: Start, *, tokenizer: Any = None) -> Trainee:
        """The model on torch's meta device: shapes only."""
        return cls(start, meta_model(start.base, tokenizer=tokenizer))

    def _usual_output(self) -> LoraOutput:
        base_adapter = find_adapter(self.start.base)
        is_adapter = self.parameters >= ADAPTER_THRESHOLD and (base_adapter is None or base_adapter.is_plain)
        return "adapter" if is_adapter else "merged"

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the trained weights.

        Raises:
            ValueError: they do not belong to this model.
        """
        copy_weights(trainable_weights(self.model), weights)

    def write(self, tokenizer: Any, folder: Path) -> dict[str, int]:
        """Write what was trained, with the tokenizer. The model cannot be trained afterwards. Its generation
        configuration says where its replies end, so that vllm and transformers end them there, too.

        Args:
            tokenizer: or an encoder, which has one.

        Returns:
            For `precision_note`: the numbers of weights that were changed, and of those that are stored with another
            value than before; empty where they are stored in the type in which they were trained.
        """
        if self._adapted is not None and self.output == "adapter":
            with _staged_folder(folder, self.model, tokenizer) as part, detached_head(self.model) as head:
                save_adapter(self._adapted, self.start.base, part)
                if head is not None:
                    save_head(head, part)
            return {}
        change_counts: dict[str, int] = {}
        model = self.model if self._adapted is None else self._adapted.merge_and_unload()
        dtype = stored_type(self.start.base)
        if dtype is not None:
            with detached_head(model):  # the head stays fp32
                if model.dtype.itemsize > dtype.itemsize:
                    change_counts = _stored_changes(model, self.start.base, dtype)
                model.to(dtype)
        save_model(model, tokenizer, folder)
        return change_counts


def write_adapter(
    weights: Mapping[str, Tensor], settings: Mapping[str, Any], model: Any, tokenizer: Any, base: str, folder: Path
) -> None:
    """Write an adapter that was trained elsewhere, with the tokenizer, as `Trainee.write` writes one.

    Args:
        weights: by peft's names.
        settings: the fields of adapter_config.json that say how they are applied.
        model: `base` with or without weights.
        base: the model that the adapter belongs to.
    """
    peft_fields = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "inference_mode": True}
    with _staged_folder(folder, model, tokenizer) as part:
        save_file(dict(weights), part / WEIGHTS, metadata={"format": "pt"})
        base_field = {"base_model_name_or_path": absolute_name(base)}
        (part / ADAPTER_CONFIG).write_text(json.dumps({**settings, **peft_fields, **base_field}, indent=2), "utf-8")


def write_ends(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write where replies end into the generation configuration in a folder, which may have one."""
    from transformers import GenerationConfig

    configs: Any = GenerationConfig
    generation = configs.from_pretrained(folder) if (folder / "generation_config.json").is_file() else configs()
    ends = sorted(reply_ends(model, tokenizer, generation))
    generation.eos_token_id = ends if len(ends) > 1 else next(iter(ends), None)
    generation.save_pretrained(folder)


def write_merged(name: str, folder: Path) -> None:
    """Write an adapter, merged into its base and rounded once to the type of that, as an ordinary model. Raises the
    errors of `load_model`."""
    tokenizer = load_tokenizer(name)
    model = load_model(name, "cpu", "float32", tokenizer=tokenizer)
    save_model(model.to(stored_type(name) or model.dtype), tokenizer, folder)


def _stored_changes(model: Any, base: str, dtype: torch.dtype) -> dict[str, int]:
    """Count the weights that differ from those of the base, and those that still do in the type `dtype`."""
    changed = stored = 0
    parameters = dict(model.named_parameters())
    for file in sorted(Path(model_path(base)).glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - it is no mapping
                if name in parameters:
                    initial, trained = weights.get_tensor(name), parameters[name].detach().cpu()
                    changed += int((trained != initial.to(trained.dtype)).sum())
                    stored += int((trained.to(dtype) != initial.to(dtype)).sum())
    return {"changed_weights": changed, "stored_weights": stored}


def precision_note(change_counts: Mapping[str, Any]) -> str | None:
    """Return what to tell the user of the weights that `Trainee.write` counted; None if most changes are stored."""
    changed, stored = change_counts.get("changed_weights") or 0, change_counts.get("stored_weights") or 0
    if stored * 2 >= changed:
        return None
    return (
        f"Of {changed:,} weights that the training changed only {stored:,} are stored with another value: the update "
        "of the others is below the precision of the type in which the model is stored. Train longer, with a higher "
        "--lr, or from a model that is stored as float32."
    )


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write model, tokenizer and chat template in Hugging Face layout, with a regression head next to them."""
    with _staged_folder(folder, model, tokenizer) as part, detached_head(model) as head:
        save_plain(model, part)
        if head is not None:
            save_head(head, part)


@contextmanager
def _staged_folder(folder: Path, model: Any, tokenizer: Any) -> Iterator[Path]:
    """A temporary folder to write to. At the end the tokenizer and the ends of replies are added, and all files are
    moved into `folder`, the configuration last: a folder with a configuration is complete."""
    config_names = ("config.json", ADAPTER_CONFIG)
    part = folder / ".part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in config_names:
        (folder / name).unlink(missing_ok=True)
    # Saving an adapter may import DeepSpeed, which prints.
    try:
        with without_progress_bars(), redirect_stdout(io.StringIO()):
            yield part
            tokenizer.save_pretrained(part)
            write_ends(model, getattr(tokenizer, "tokenizer", tokenizer), part)
    except BaseException:  # a disk may be full
        shutil.rmtree(part, ignore_errors=True)
        raise
    for path in sorted(part.iterdir(), key=lambda path: path.name in config_names):
        path.replace(folder / path.name)
    part.rmdir()
