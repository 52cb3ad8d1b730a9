"""Pictures in a sequence of tokens: how many tokens one takes, and what the model is given of it.

In the ids a picture is a run of one placeholder token, as many as the model makes states of it. That number follows
from the picture's size alone, so a sequence holds only where each picture lies; its pixels are read, scaled and cut
into patches by the model's own image processor (the one that needs Pillow alone) when a forward needs them. Taken are
models of the shape of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: patches of all pictures in one tensor `pixel_values`
[patches, numbers], and `image_grid_thw` [pictures, 3], how many patches each has in time, height and width. `merge`
patches a side become one token. Positions in height and width are computed by the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweet.errors import SweetError, UsageError
from sweet.llm.pretrained import load_config, load_image_processor
from sweet.render.screenshot_images import read_image

CACHE_SIZE = 8
"""Prepared pictures that are kept for the next forward: one of 512 tokens has 10 MB."""

_INPUTS = {"pixel_values", "image_grid_thw"}


@dataclass(frozen=True)
class Picture:
    """A picture in a sequence: the file it lies in (PNG), how many tokens it takes, and who prepares it."""

    path: Path
    tokens: int
    vision: VisionProcessor = field(compare=False, repr=False)


class VisionProcessor:
    """How a vision-language model is shown pictures: its image processor with a bound on their size.

    Attributes:
        token: the id of the placeholder.

    Args:
        name: the model, as `sweet.llm.pretrained` takes it.
        most_pixels: larger pictures are scaled down to so many; the processor's own bound where not given.

    Raises:
        UsageError: the model has no image processor, or one that gives something else than named above.
    """

    def __init__(self, name: str, max_pixels: int | None = None) -> None:
        self.processor = load_image_processor(name)
        config = load_config(name)
        token = getattr(config, "image_token_id", None)
        if not set(self.processor.model_input_names) >= _INPUTS or token is None:
            raise UsageError(
                f"The model {name} takes pictures otherwise than Qwen2-VL and its successors do.",
                where=f"{config.model_type}: {', '.join(self.processor.model_input_names)}",
                fix="a model of the families Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
            )
        self.token = int(token)
        self.reserved = {int(i) for i in (token, getattr(config, "video_token_id", None)) if i is not None}
        """Ids that may stand for nothing but what the model is shown."""
        if max_pixels is not None:
            size = self.processor.size
            longest_edge = min(max_pixels, int(size["longest_edge"]))
            self.processor.size = {
                "shortest_edge": min(int(size["shortest_edge"]), longest_edge),
                "longest_edge": longest_edge,
            }
        self._patches_per_token = int(self.processor.merge_size) ** 2
        self._cached = lru_cache(maxsize=CACHE_SIZE)(self._prepare)

    def picture(self, path: Path) -> Picture:
        """The picture in a file. Only its size is looked at."""
        from PIL import Image

        try:
            with Image.open(path, formats=["PNG"]) as image:
                width, height = image.size
            patches = int(self.processor.get_number_of_image_patches(height, width, {}))
        except (OSError, ValueError) as error:
            raise SweetError(f"A screenshot cannot be shown to the model: {error}.", where=path) from error
        return Picture(path, patches // self._patches_per_token, self)

    def patches(self, picture: Picture) -> tuple[Tensor, Tensor]:
        """Its patches [patches, numbers] and its grid [3].

        Raises:
            SweetError: the file is not what it was.
        """
        pixels, grid = self._cached(picture.path)
        if int(grid.prod()) // self._patches_per_token != picture.tokens:
            raise SweetError("A screenshot changed while it was in use.", where=picture.path, fix="start again")
        return pixels, grid

    def _prepare(self, path: Path) -> tuple[Tensor, Tensor]:
        try:
            png = path.read_bytes()
        except OSError as error:
            raise SweetError(f"A screenshot cannot be read: {error.strerror}.", where=path) from error
        prepared_image = self.processor(images=[read_image(png)], return_tensors="pt")
        return prepared_image["pixel_values"], prepared_image["image_grid_thw"][0]

    def save_pretrained(self, folder: Path) -> None:
        """Write the image processor, its bound included."""
        self.processor.save_pretrained(folder)


def image_inputs(model: Any, pictures: Sequence[Picture], ids: Tensor) -> dict[str, Tensor]:
    """What `model`'s forward takes besides `ids` for the pictures of their rows, in order; nothing without any."""
    if not pictures:
        return {}
    prepared = [picture.vision.patches(picture) for picture in pictures]
    inputs = {
        "pixel_values": torch.cat([pixels for pixels, _ in prepared]).to(ids.device),
        "image_grid_thw": torch.stack([grid for _, grid in prepared]).to(ids.device),
    }
    # Later versions of the library want to be told where the pictures stand, from which positions follow.
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["mm_token_type_ids"] = (ids == pictures[0].vision.token).int()
    return inputs
