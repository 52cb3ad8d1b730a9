"""Open what compares screenshots by the value of `--similarity`, and embed them by the image tower of a CLIP or SigLIP
model in Hugging Face layout. CLIP ViT-B/32 is the paper's reward.

Only the image tower is loaded: for CLIP with its projection (as `get_image_features` returns), for SigLIP the pooled
output. Images are preprocessed by the model's own image processor, in its version for Pillow, which does not need
torchvision. A model is a directory or a hub id; a hub id is looked up in the local cache first, and the hub is asked
once, with a short time-out. Numbers are float32 on every device.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweet.device import Device
from sweet.errors import UsageError
from sweet.hf import cached_file, check_complete, loading_errors, locate_model, resolve_device
from sweet.hints import option
from sweet.render.screenshot_images import read_image, require_pillow
from sweet.render.similarity import Similarity, Vector, unit
from sweet.render.similarity_pixels import Pixels

CLIP = "openai/clip-vit-base-patch32"
"""CLIP ViT-B/32, the model of the paper."""

_KNOWN = (
    f"copy the directory of a CLIP or SigLIP model here and name it, download {CLIP} where there is a hub "
    f"(hf download {CLIP}), or --similarity pixels, which needs no weights"
)
_COMPLETE = "name a complete CLIP or SigLIP model in Hugging Face layout, with its preprocessor_config.json"
_BATCH = 32
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def open_similarity(choice: str | None, device: Device, say: Callable[[str], None]) -> Similarity:
    """Open the similarity that `choice` names.

    Args:
        choice: `clip`, `pixels`, or the directory or hub id of a CLIP or SigLIP model. None selects CLIP ViT-B/32 if
            its weights are in the local cache, else `pixels`.
        device: the device that a model runs on.
        say: called with a line of text where `pixels` was selected by default.

    Raises:
        UsageError: Pillow or the model is missing, or the model is neither CLIP nor SigLIP.
    """
    require_pillow()
    if choice == "pixels":
        return Pixels()
    if choice is None and not is_cached(CLIP):
        say(
            f"The weights of {CLIP} are not on this machine: {Pixels.name}, histograms of colours and edges, is used "
            "instead. Its cosines are not comparable with CLIP's; --similarity clip downloads the weights."
        )
        return Pixels()
    return ImageTower(CLIP if choice in (None, "clip") else choice, device)


class ImageTower:
    """Implements sweet.render.similarity.Similarity.

    The name ends in a digest of the weights and the preprocessing, so that the same name means the same metrics,
    wherever the model was loaded from.

    Raises:
        UsageError: there is no such model or device, the model is neither CLIP nor SigLIP, or it is incomplete.
    """

    def __init__(self, model: str, device: Device = "auto") -> None:
        self.choice = model
        self._device = resolve_device(device)
        self._tower, self._processor = _load(model)
        self.name = f"{_short(model)}@{_digest(self._tower, self._processor)}"
        self._tower = self._tower.to(self._device)

    def embed(self, pictures: Sequence[bytes]) -> list[Vector]:
        import torch

        vectors: list[Vector] = []
        for start in range(0, len(pictures), _BATCH):
            images = [read_image(png) for png in pictures[start : start + _BATCH]]
            prepared = self._processor(images=images, return_tensors="pt")["pixel_values"].to(self._device)
            with torch.inference_mode():
                output = self._tower(pixel_values=prepared.float())
            projected = getattr(output, "image_embeds", None)
            features = output.pooler_output if projected is None else projected
            vectors += [unit(row) for row in features.float().cpu().numpy()]
        return vectors


def is_cached(model: str) -> bool:
    """Return whether a hub id can be loaded without asking the hub."""

    def cached(name: str) -> bool:
        return cached_file(model, name) is not None

    return cached("config.json") and cached("preprocessor_config.json") and any(map(cached, _WEIGHTS))


def _load(model: str) -> tuple[Any, Any]:
    """Return the image tower in evaluation mode, float32, and its image processor."""
    import torch
    import transformers

    library: Any = transformers
    path = locate_model(model, model, where="--similarity", fix=_KNOWN)
    with _without_warnings(), loading_errors(model, where="--similarity", fix=_COMPLETE):
        config = library.AutoConfig.from_pretrained(path, trust_remote_code=False)
        if config.model_type == "clip":
            vision, tower = config.vision_config, library.CLIPVisionModelWithProjection
            vision.projection_dim = config.projection_dim
        elif config.model_type == "siglip":
            vision, tower = config.vision_config, library.SiglipVisionModel
        else:
            raise UsageError(
                f"{model} is a model of the type {config.model_type}; screenshots are compared by CLIP or SigLIP.",
                where="--similarity",
                fix=option("similarity", CLIP),
            )
        loaded, report = tower.from_pretrained(
            path, config=vision, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
        )
        processor = library.AutoImageProcessor.from_pretrained(path, backend="pil", trust_remote_code=False)
    check_complete(report, model, "--similarity")
    return loaded.eval(), processor


def _digest(tower: Any, processor: Any) -> str:
    """Return 12 hex digits of the sha256 of the weights and of the preprocessing."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tower.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    settings = {name: value for name, value in processor.to_dict().items() if not name.startswith("_")}
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:12]


def _short(model: str) -> str:
    return Path(model).expanduser().resolve().name if Path(model).expanduser().is_dir() else model.rsplit("/", 1)[-1]


@contextmanager
def _without_warnings() -> Iterator[None]:
    from transformers.utils import logging as library

    logging: Any = library
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
